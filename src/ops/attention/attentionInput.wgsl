// Norm (QK_NORM) and RoPE of a token's queries and keys; keys and values go to their page. One workgroup per token and head:
// query heads first, then kv heads.
#include reduce
#include step
#include rope
const WG = 64u;

@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(4) var<storage, read> pageTable: array<u32>;
@group(0) @binding(5) var<storage, read_write> queries: array<f32>; // [tokens, heads, headDim]
@group(0) @binding(6) var<storage, read_write> pages: array<f32>; // [pages][key, value][PAGE_TOKENS][kvHeads * headDim]

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
  for (var i = thread; i < HEAD_DIM; i += WG) {
    let value = rotated(token, at, i, scale, norm);
    if (isKey) {
      pages[keyRow + i] = value;
      pages[valueRow + i] = inputs[token * IN_STRIDE + V_AT + kvHead * HEAD_DIM + i];
    } else {
      queries[(token * HEADS + group.x) * HEAD_DIM + i] = value;
    }
  }
}
