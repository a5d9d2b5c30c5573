// The products of experts with the rows of their tokens on matrix units, as tensorMul does it for resident matrices. A workgroup has
// up to TOKENS tokens of one expert (a tile of groupTokens), and as many rows of its matrix as its subgroups have between them, each
// FRAG_ROWS matrices of 16. Of tokens it multiplies SURE sixteens, whether there are as many or not, since a branch costs more than they
// do, and MORE besides where there are more. Outputs lie in the order of the list of pairs,
// where each expert begins with a sixteen: what is past its last token is nobody's. GATHER: inputs are rows of tokens, else they lie
// in that order, too. Each output element is one sum over columns in order, whatever the tile holds besides.
#include tensorTiles
#include segments

const UNITS = STAGE / 32u; // of a row, in a stage of columns
const EIGHTS = STAGE / 8u;
const SUBGROUP = 32u;
const WG = SUBGROUP * SUB_ROWS;
const TOKENS = (SURE + MORE) * 16u;
const ROWS = SUB_ROWS * FRAG_ROWS * 16u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>; // of all slots, and their scales and biases
@group(0) @binding(1) var<uniform> segments: Segments;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>; // [rows, cols / 8] half floats, in the order of their codes
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [places, outStride]
@group(0) @binding(4) var<storage, read> groups: array<u32>; // [0] tiles; 4 per tile: slot, first, count; pairs at PAIRS_AT

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  if (group.y >= groups[0]) { return; }
  let slot = groups[4u + group.y * 4u];
  let first = groups[4u + group.y * 4u + 1u]; // a place of the list of pairs
  let count = groups[4u + group.y * 4u + 2u];
  let sixteens = (count + 15u) / 16u;
  let segment = segments.list[segmentOf(group.x)];
  let firstRow = (group.x - segment.firstTile) * ROWS;
  let cols = segments.cols;
  let units = cols / 32u;
  let eights = cols / GROUP / 8u; // of scales
  let weightBase = (segment.weight + slot * segments.expertWords) / 4u;
  let scaleBase = (segment.scales + slot * segments.expertWords * 2u) / 8u;
  let biasBase = (segment.biases + slot * segments.expertWords * 2u) / 8u;
  let rowAt = thread / SUBGROUP * FRAG_ROWS * 16u;
#for n FRAG_ROWS
#for m SURE
  var sums_$(m)_$(n): Sums;
#endfor
#for m MORE
  var more_$(m)_$(n): Sums;
#endfor
#endfor
  // A thread brings the same units of the same rows in each stage, and its scales eight groups at a time.
#for i ROW_TASKS
  let unit_$(i) = (thread + $(i)u * WG) % UNITS;
  let row_$(i) = (thread + $(i)u * WG) / UNITS;
  let from_$(i) = firstRow + row_$(i);
  let codesAt_$(i) = weightBase + from_$(i) * units + unit_$(i);
  var codes_$(i) = weights[codesAt_$(i)];
  var after_$(i) = weights[codesAt_$(i) + min(STAGE, cols - STAGE) / 32u];
  var scales_$(i) = weights[scaleBase + from_$(i) * eights];
  var biases_$(i) = weights[biasBase + from_$(i) * eights];
#endfor
#for i TOKEN_TASKS
  let token_$(i) = (thread + $(i)u * WG) / EIGHTS;
  let isIn_$(i) = token_$(i) < sixteens * 16u;
#if GATHER
  let input_$(i) = groups[PAIRS_AT + first + min(token_$(i), count - 1u)] / ROWS_SHARE;
#else
  let input_$(i) = first + min(token_$(i), count - 1u);
#endif
  let inputAt_$(i) = input_$(i) * (cols / 8u) + thread % EIGHTS;
  var inputs_$(i) = vec4<u32>();
  if (isIn_$(i)) { inputs_$(i) = x[inputAt_$(i)]; }
#endfor
  for (var column = 0u; column < cols; column += STAGE) {
#for i ROW_TASKS
    putWeights(row_$(i), unit_$(i), column, codes_$(i), scales_$(i), biases_$(i));
#endfor
#for i TOKEN_TASKS
    if (isIn_$(i)) { tokenTile[token_$(i) * STRIDE + thread % EIGHTS] = inputs_$(i); }
#endfor
    workgroupBarrier();
    // What comes next is on its way while this is multiplied; weights, which come from far, for two stages.
    let next = min(column + STAGE, cols - STAGE);
#for i ROW_TASKS
    codes_$(i) = after_$(i);
    after_$(i) = weights[codesAt_$(i) + min(column + 2u * STAGE, cols - STAGE) / 32u];
#endfor
    if (next % (8u * GROUP) == 0u) {
#for i ROW_TASKS
      scales_$(i) = weights[scaleBase + from_$(i) * eights + next / (8u * GROUP)];
      biases_$(i) = weights[biasBase + from_$(i) * eights + next / (8u * GROUP)];
#endfor
    }
#for i TOKEN_TASKS
    if (isIn_$(i)) { inputs_$(i) = x[inputAt_$(i) + next / 8u]; }
#endfor
#for k STEPS
    {
#for n FRAG_ROWS
      let right_$(n) = subgroupMatrixLoad<Right, col_major>(&rowTile, (rowAt + $(n)u * 16u) * STRIDE + $(k)u * 2u, STRIDE);
#endfor
#for m SURE
      let left_$(m) = subgroupMatrixLoad<Left, row_major>(&tokenTile, $(m)u * 16u * STRIDE + $(k)u * 2u, STRIDE);
#for n FRAG_ROWS
      sums_$(m)_$(n) = subgroupMatrixMultiplyAccumulate(left_$(m), right_$(n), sums_$(m)_$(n));
#endfor
#endfor
#if MORE
      if (sixteens > SURE) {
#for m MORE
        let leftMore_$(m) = subgroupMatrixLoad<Left, row_major>(&tokenTile, (SURE + $(m)u) * 16u * STRIDE + $(k)u * 2u, STRIDE);
#for n FRAG_ROWS
        more_$(m)_$(n) = subgroupMatrixMultiplyAccumulate(leftMore_$(m), right_$(n), more_$(m)_$(n));
#endfor
#endfor
      }
#endif
    }
#endfor
    workgroupBarrier();
  }
  let outAt = first * segments.outStride + segment.out + firstRow + rowAt;
#for n FRAG_ROWS
#for m SURE
  if ($(m)u < sixteens) {
    subgroupMatrixStore<row_major>(&y, outAt + $(m)u * 16u * segments.outStride + $(n)u * 16u, sums_$(m)_$(n), segments.outStride);
  }
#endfor
#for m MORE
  if (SURE + $(m)u < sixteens) {
    subgroupMatrixStore<row_major>(&y, outAt + (SURE + $(m)u) * 16u * segments.outStride + $(n)u * 16u, more_$(m)_$(n), segments.outStride);
  }
#endfor
#endfor
}
