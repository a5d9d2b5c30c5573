// Y = X W^T for many tokens by a GPU's matrix units: subgroup matrices of 16 x 16, half floats multiplied, float32 added up. A
// workgroup has TOKENS x ROWS of the output, a subgroup FRAG_TOKENS x FRAG_ROWS matrices of it. Weights of 4 bits become half floats
// on their way into workgroup memory (tensorTiles.wgsl), inputs (halfRows.wgsl) go there beside them. Matrices in arrays are not kept
// in registers: loops over them are written out. Each output element is one sum over columns in order, whatever the tile holds
// besides. Rows past the last token are computed from whatever is there, and written: buffers have them, and nobody reads them.
#include tensorTiles
#include segments

const STAGE = 64u; // columns
const SUBGROUP = 32u;
const SUBGROUPS_USED = SUB_TOKENS * SUB_ROWS;
const WG = SUBGROUP * SUBGROUPS_USED;
const TOKENS = SUB_TOKENS * FRAG_TOKENS * 16u;
const ROWS = SUB_ROWS * FRAG_ROWS * 16u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>; // and scales and biases
@group(0) @binding(1) var<uniform> segments: Segments;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>; // [tokens, cols / 8] half floats, in the order of their codes
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [tokens, outStride]

var<workgroup> aside: array<f32, SUBGROUPS_USED * 256u>; // a matrix of each subgroup on its way out, where rows end within a tile

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let segment = segments.list[segmentOf(group.x)];
  let firstRow = (group.x - segment.firstTile) * ROWS;
  let firstToken = group.y * TOKENS;
  let cols = segments.cols;
  let units = cols / 32u;
  let eights = cols / GROUP / 8u; // of scales
  let subgroup = thread / SUBGROUP;
  let lane = thread % SUBGROUP;
  let tokenAt = subgroup % SUB_TOKENS * FRAG_TOKENS * 16u;
  let rowAt = subgroup / SUB_TOKENS * FRAG_ROWS * 16u;
#for m FRAG_TOKENS
#for n FRAG_ROWS
  var sums_$(m)_$(n): Sums;
#endfor
#endfor
  // A thread brings the same units of the same rows in each stage, and its scales eight groups at a time.
#for i ROW_TASKS
  let unit_$(i) = (thread + $(i)u * WG) % 2u;
  let row_$(i) = (thread + $(i)u * WG) / 2u;
  let from_$(i) = min(firstRow + row_$(i), segment.rows - 1u);
  let codesAt_$(i) = segment.weight / 4u + from_$(i) * units + unit_$(i);
  var codes_$(i) = weights[codesAt_$(i)];
  var scales_$(i) = weights[segment.scales / 8u + from_$(i) * eights];
  var biases_$(i) = weights[segment.biases / 8u + from_$(i) * eights];
#endfor
#for i TOKEN_TASKS
  let token_$(i) = (thread + $(i)u * WG) / 8u;
  let inputAt_$(i) = (firstToken + token_$(i)) * (cols / 8u) + thread % 8u;
  var inputs_$(i) = x[inputAt_$(i)];
#endfor
  for (var column = 0u; column < cols; column += STAGE) {
#for i ROW_TASKS
    putWeights(row_$(i), unit_$(i), column, codes_$(i), scales_$(i), biases_$(i));
#endfor
#for i TOKEN_TASKS
    tokenTile[token_$(i) * STRIDE + thread % 8u] = inputs_$(i);
#endfor
    workgroupBarrier();
    // What comes next is on its way while this is multiplied.
    let next = min(column + STAGE, cols - STAGE);
#for i ROW_TASKS
    codes_$(i) = weights[codesAt_$(i) + next / 32u];
#endfor
    if (next % (8u * GROUP) == 0u) {
#for i ROW_TASKS
      scales_$(i) = weights[segment.scales / 8u + from_$(i) * eights + next / (8u * GROUP)];
      biases_$(i) = weights[segment.biases / 8u + from_$(i) * eights + next / (8u * GROUP)];
#endfor
    }
#for i TOKEN_TASKS
    inputs_$(i) = x[inputAt_$(i) + next / 8u];
#endfor
#for k 4
    {
#for m FRAG_TOKENS
      let left_$(m) = subgroupMatrixLoad<Left, row_major>(&tokenTile, (tokenAt + $(m)u * 16u) * STRIDE + $(k)u * 2u, STRIDE);
#endfor
#for n FRAG_ROWS
      let right_$(n) = subgroupMatrixLoad<Right, col_major>(&rowTile, (rowAt + $(n)u * 16u) * STRIDE + $(k)u * 2u, STRIDE);
#for m FRAG_TOKENS
      sums_$(m)_$(n) = subgroupMatrixMultiplyAccumulate(left_$(m), right_$(n), sums_$(m)_$(n));
#endfor
#endfor
    }
#endfor
    workgroupBarrier();
  }
  let outAt = (firstToken + tokenAt) * segments.outStride + segment.out + firstRow + rowAt;
  if (firstRow + ROWS <= segment.rows) {
#for m FRAG_TOKENS
#for n FRAG_ROWS
    subgroupMatrixStore<row_major>(&y, outAt + $(m)u * 16u * segments.outStride + $(n)u * 16u, sums_$(m)_$(n), segments.outStride);
#endfor
#endfor
    return;
  }
#for m FRAG_TOKENS
#for n FRAG_ROWS
  subgroupMatrixStore<row_major>(&aside, subgroup * 256u, sums_$(m)_$(n), 16u);
  workgroupBarrier();
  if (firstRow + rowAt + $(n)u * 16u + lane % 16u < segment.rows) {
    for (var i = lane / 16u; i < 16u; i += 2u) {
      y[outAt + ($(m)u * 16u + i) * segments.outStride + $(n)u * 16u + lane % 16u] = aside[subgroup * 256u + i * 16u + lane % 16u];
    }
  }
  workgroupBarrier();
#endfor
#endfor
}
