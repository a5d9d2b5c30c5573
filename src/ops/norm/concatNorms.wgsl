// What the head for drafts takes in: a token's embedding and the hidden row before it, which has gone through the final norm, each
// normed once more, side by side. One workgroup per row. CHAIN: the row before is the head's own, of the guess before. Else it is
// that of the token before in the run, or what the sequence's state keeps of its last token; zeros where nothing is known of it.
// STORE: of each token whose state is written its hidden row is kept with it.
#include reduce
#include step

struct Step { tokens: u32, runs: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(2) var<storage, read> norms: array<f32>; // [3, WIDTH]: of embeddings, of hidden rows, the final one before that
@group(0) @binding(3) var<storage, read> embedded: array<f32>; // [tokens, WIDTH]
@group(0) @binding(4) var<storage, read> hidden: array<f32>; // [tokens, WIDTH]: before the final norm
@group(0) @binding(5) var<storage, read_write> kept: array<f32>; // [states, WIDTH]: the same, of a sequence's last token
@group(0) @binding(6) var<storage, read_write> joined: array<f32>; // [tokens, 2, WIDTH]

fn before(row: u32, info: Token, i: u32) -> f32 {
#if CHAIN
  return hidden[row * WIDTH + i];
#else
  if (info.position < info.firstRow) { return 0.0; }
  if (info.index > 0u) { return hidden[(row - 1u) * WIDTH + i]; }
  return kept[info.stateIn * WIDTH + i];
#endif
}

@compute @workgroup_size(WG)
#include mainOfTeam
  let row = group.x;
  let info = tokens[row];
  var embeddedSquares = 0.0;
  var hiddenSquares = 0.0;
  for (var i = thread; i < WIDTH; i += WG) {
    let e = embedded[row * WIDTH + i];
    let h = before(row, info, i);
    embeddedSquares += e * e;
    hiddenSquares += h * h;
  }
  let embeddedScale = inverseSqrt(workgroupSum(embeddedSquares, thread, lane, subgroupSize) / f32(WIDTH) + EPS);
  let hiddenScale = inverseSqrt(workgroupSum(hiddenSquares, thread, lane, subgroupSize) / f32(WIDTH) + EPS);
  var finalSquares = 0.0;
  for (var i = thread; i < WIDTH; i += WG) {
    let value = before(row, info, i) * hiddenScale * norms[2u * WIDTH + i];
    finalSquares += value * value;
  }
  let finalScale = inverseSqrt(workgroupSum(finalSquares, thread, lane, subgroupSize) / f32(WIDTH) + EPS);
#if STORE
  let isLast = row + 1u == step.tokens || tokens[min(row + 1u, step.tokens - 1u)].stateOut != info.stateOut;
#endif
  for (var i = thread; i < WIDTH; i += WG) {
    let value = before(row, info, i) * hiddenScale * norms[2u * WIDTH + i];
    joined[row * 2u * WIDTH + i] = embedded[row * WIDTH + i] * embeddedScale * norms[i];
    joined[(row * 2u + 1u) * WIDTH + i] = value * finalScale * norms[WIDTH + i];
#if STORE
    if (isLast) { kept[info.stateOut * WIDTH + i] = hidden[row * WIDTH + i]; }
#endif
  }
}
