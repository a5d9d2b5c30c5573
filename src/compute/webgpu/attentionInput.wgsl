// Norm (QK_NORM) and RoPE of a token's queries and keys; keys and values go to their page. One workgroup per token and head:
// query heads first, then kv heads. Angles come from a table made on the CPU: a GPU's sin is too coarse for them.
#include reduce
#include step
const WG = 64u;

#if QK_NORM
@group(0) @binding(0) var<storage, read> norms: array<f32>; // [2, headDim]: query, key
#endif
@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(2) var<storage, read> angles: array<vec2<f32>>; // [tokens, rotaryDim / 2] cos, sin
@group(0) @binding(3) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: a query every Q_STRIDE; k at K_AT, v at V_AT
@group(0) @binding(4) var<storage, read> pageTable: array<u32>;
@group(0) @binding(5) var<storage, read_write> queries: array<f32>; // [tokens, heads, headDim]
@group(0) @binding(6) var<storage, read_write> pages: array<f32>; // [pages][key, value][PAGE_TOKENS][kvHeads * headDim]

fn normed(at: u32, i: u32, scale: f32, norm: u32) -> f32 {
#if QK_NORM
  return inputs[at + i] * scale * norms[norm + i];
#else
  return inputs[at + i];
#endif
}

@compute @workgroup_size(64)
#include mainOfTeam
  let token = group.y;
  let isKey = group.x >= HEADS;
  let kvHead = group.x - HEADS;
  let at = token * IN_STRIDE + select(group.x * Q_STRIDE, K_AT + kvHead * HEAD_DIM, isKey);
#if QK_NORM
  var squares = 0.0;
  for (var i = thread; i < HEAD_DIM; i += WG) { squares += inputs[at + i] * inputs[at + i]; }
  let scale = inverseSqrt(workgroupSum(squares, thread, lane, subgroupSize) / f32(HEAD_DIM) + EPS);
#else
  const scale = 1.0;
#endif
  let norm = select(0u, HEAD_DIM, isKey);
  let info = tokens[token];
  let page = pageTable[info.pages + info.position / PAGE_TOKENS];
  let keyRow = ((page * 2u) * PAGE_TOKENS + info.position % PAGE_TOKENS) * (KV_HEADS * HEAD_DIM) + kvHead * HEAD_DIM;
  let valueRow = keyRow + PAGE_TOKENS * KV_HEADS * HEAD_DIM;
  const halfRotary = ROTARY_DIM / 2u;
  for (var i = thread; i < HEAD_DIM; i += WG) {
    var value = normed(at, i, scale, norm);
    if (i < ROTARY_DIM) {
      let angle = angles[token * halfRotary + i % halfRotary];
      if (i < halfRotary) { value = value * angle.x - normed(at, i + halfRotary, scale, norm) * angle.y; }
      else { value = value * angle.x + normed(at, i - halfRotary, scale, norm) * angle.y; }
    }
    if (isKey) {
      pages[keyRow + i] = value;
      pages[valueRow + i] = inputs[token * IN_STRIDE + V_AT + kvHead * HEAD_DIM + i];
    } else {
      queries[(token * HEADS + group.x) * HEAD_DIM + i] = value;
    }
  }
}
