// Softmax attention of prompts over paged keys and values by a GPU's matrix units: half floats multiplied, float32 added up. A workgroup
// takes one kv head and ROWS rows, a row being a token with one of the kv head's query heads, and all tokens being of one run. Keys
// and values become half floats on their way into workgroup memory, TILE positions at a time, once for all rows; the next ones are on
// their way meanwhile. Queries stay in matrices of the subgroups, by the scale of a score in powers of two.
// Keys and values are taken as they are: one above 65,504 becomes infinite, and what is not finite fails the step.
//
// A row's weights are powers of two over what its largest score was when it last grew by more than GROWTH: matrices cannot be scaled
// by rows where they are, so sums go through workgroup memory for that, which is seldom. Weights are then no larger than
// 2^(GROWTH + SHIFT), and of use down to 2^-24 of half floats.
//
// Tiles lie at absolute multiples, and a masked position adds exactly nothing, to the sums as well as to the scale: so a token's result
// does not depend on the tokens beside it. What is not finite stays with the tokens that see it: nothing is loaded past a workgroup's
// last token, and among its own tokens a value that is not finite counts as none and is put back into its own token's output,
// which fails the step. Matrices in arrays are not kept in registers: loops over them are written out.
#include activations
#include finite
#include step
const SUBGROUP = 32u;
const WG = SUBGROUP * SUBGROUPS_USED;
const HEADS_PER_KV = HEADS / KV_HEADS;
const TOKENS = ROWS / HEADS_PER_KV;
const QUADS = HEAD_DIM / 4u;
const KV_QUADS = KV_HEADS * QUADS;
const STRIDE = HEAD_DIM + 8u; // rows that do not begin in the same banks
const VALUES = TILE * STRIDE; // where they begin
const SCORE_STRIDE = TILE + 4u;
const WEIGHT_STRIDE = TILE + 8u;
const LANES = WG / ROWS; // threads that share a row's softmax
const GROWTH = 11.0;
const SHIFT = 4.0;
const LOG2_E = 1.4426950408889634;
const NONE = -1e30;

struct Step { tokens: u32, runs: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(2) var<storage, read> runs: array<Run>;
@group(0) @binding(3) var<storage, read> pageTable: array<u32>;
@group(0) @binding(4) var<storage, read> queries: array<vec4<f32>>; // [tokens, heads, headDim]
@group(0) @binding(5) var<storage, read> pages: array<vec4<f32>>; // [pages][key, value][PAGE_TOKENS][kvHeads * headDim]
@group(0) @binding(6) var<storage, read_write> out: array<f32>; // [tokens, heads, headDim]
#if GATED
@group(0) @binding(7) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: per head query, gate
#endif
#if SINKS
@group(0) @binding(8) var<storage, read> sinks: array<f32>; // [heads]
#endif

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

// All of a multiple of 16 bytes: drivers lay them one behind the other, and matrices are loaded 16 bytes at a time.
var<workgroup> tiles: array<f16, 2u * TILE * STRIDE>; // keys, then values; before the first, queries
var<workgroup> scores: array<f32, ROWS * SCORE_STRIDE>; // and a matrix of each subgroup, where sums are scaled or written
var<workgroup> weights: array<f16, ROWS * WEIGHT_STRIDE>;
var<workgroup> rowScale: array<f32, ROWS>;
var<workgroup> growths: array<atomic<u32>, 4>; // the first of them: how often a row's scale has changed

fn putHalves(at: u32, four: vec4<f32>) {
#for i 4
  tiles[at + $(i)u] = f16(four[$(i)]);
#endfor
}

fn finiteOrNone(value: f32) -> f32 { return select(value, 0.0, notFinite(bitcast<u32>(value)) != 0u); }

// The first quad of a position's keys, of all kv heads.
fn tileAt(table: u32, position: u32) -> u32 {
  return (pageTable[table + position / PAGE_TOKENS] * 2u * PAGE_TOKENS + position % PAGE_TOKENS) * KV_QUADS;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let kvHead = group.x;
  // Which tokens: runs are cut into workgroups one by one.
  var block = group.y;
  var index = 0u;
  while (index < step.runs) {
    let blocks = (runs[index].count + TOKENS - 1u) / TOKENS;
    if (block < blocks) { break; }
    block -= blocks;
    index++;
  }
  if (index == step.runs) { return; }
  let run = runs[index];
  let firstToken = run.first + block * TOKENS;
  let lastToken = min(firstToken + TOKENS, run.first + run.count) - 1u;
  let firstPosition = tokens[firstToken].position;
  let last = tokens[lastToken];
  let endTile = last.position / TILE + 1u;
#if WINDOW > 0
  let firstTile = select(firstPosition + 1u - WINDOW, 0u, firstPosition + 1u < WINDOW) / TILE;
#else
  const firstTile = 0u;
#endif
  let subgroup = thread / SUBGROUP;
  let lane = thread % SUBGROUP;

  let scoreRow = subgroup % (ROWS / 16u) * 16u;
  let scoreColumn = subgroup / (ROWS / 16u) * SCORE_COLS * 16u;
  for (var i = thread; i < ROWS * QUADS; i += WG) {
    let token = min(firstToken + i / QUADS / HEADS_PER_KV, lastToken);
    let head = kvHead * HEADS_PER_KV + i / QUADS % HEADS_PER_KV;
    putHalves(i / QUADS * STRIDE + i % QUADS * 4u, queries[(token * HEADS + head) * QUADS + i % QUADS] * (SCALE * LOG2_E));
  }
  workgroupBarrier();
#for k DIM_FRAGS
  let query_$(k) = subgroupMatrixLoad<Left, row_major>(&tiles, scoreRow * STRIDE + $(k)u * 16u, STRIDE);
#endfor
  workgroupBarrier();

  // A thread's part of the softmax: every LANES-th pair of a row's columns.
  let row = thread / LANES;
  let column = thread % LANES;
  let own = tokens[min(firstToken + row / HEADS_PER_KV, lastToken)].position;
  var rowMax = NONE;
  var rowSum = 0.0;
  var growthsSeen = 0u;
  if (thread == 0u) { atomicStore(&growths[0], 0u); }

  let sumRow = subgroup % SUB_ROWS * FRAG_ROWS * 16u;
  let sumColumn = subgroup / SUB_ROWS * FRAG_COLS * 16u;
#for m FRAG_ROWS
#for n FRAG_COLS
  var sums_$(m)_$(n): Sums;
#endfor
#endfor

  var keysAt = tileAt(last.pages, firstTile * TILE) + kvHead * QUADS;
#for i TASKS
  let taskRow_$(i) = (thread + $(i)u * WG) / QUADS;
  let taskQuad_$(i) = (thread + $(i)u * WG) % QUADS;
  let put_$(i) = taskRow_$(i) * STRIDE + taskQuad_$(i) * 4u;
  var four_$(i) = pages[keysAt + min(taskRow_$(i), last.position - firstTile * TILE) * KV_QUADS + taskQuad_$(i)];
#endfor
  for (var tile = firstTile; tile < endTile; tile++) {
    let position = tile * TILE;
    let lastRow = last.position - position; // rows past it were never written
    let valuesAt = keysAt + PAGE_TOKENS * KV_QUADS;
#for i TASKS
    putHalves(put_$(i), four_$(i));
    four_$(i) = pages[valuesAt + min(taskRow_$(i), lastRow) * KV_QUADS + taskQuad_$(i)];
#endfor
    workgroupBarrier();
#for n SCORE_COLS
    var products_$(n) = Sums();
#endfor
#for k DIM_FRAGS
    {
#for n SCORE_COLS
      let keys_$(n) = subgroupMatrixLoad<Right, col_major>(&tiles, (scoreColumn + $(n)u * 16u) * STRIDE + $(k)u * 16u, STRIDE);
      products_$(n) = subgroupMatrixMultiplyAccumulate(query_$(k), keys_$(n), products_$(n));
#endfor
    }
#endfor
#for n SCORE_COLS
    subgroupMatrixStore<row_major>(&scores, scoreRow * SCORE_STRIDE + scoreColumn + $(n)u * 16u, products_$(n), SCORE_STRIDE);
#endfor
    workgroupBarrier();
    if (position + TILE > firstPosition + 1u) {
#for i TASKS
      for (var c = 0u; c < 4u; c++) { four_$(i)[c] = finiteOrNone(four_$(i)[c]); }
#endfor
    }
    let next = min(tile + 1u, endTile - 1u) * TILE;
    keysAt = tileAt(last.pages, next) + kvHead * QUADS;
#for i TASKS
    putHalves(VALUES + put_$(i), four_$(i));
    four_$(i) = pages[keysAt + min(taskRow_$(i), last.position - next) * KV_QUADS + taskQuad_$(i)];
#endfor
    {
      var largest = NONE;
#for c COLUMNS
      let column_$(c) = column * 2u + $(c)u / 2u * (2u * LANES) + $(c)u % 2u;
#if WINDOW > 0
      let isSeen_$(c) = position + column_$(c) <= own && position + column_$(c) + WINDOW > own;
#else
      let isSeen_$(c) = position + column_$(c) <= own;
#endif
      let score_$(c) = select(NONE, scores[row * SCORE_STRIDE + column_$(c)], isSeen_$(c));
      largest = max(largest, score_$(c));
#endfor
      for (var distance = 1u; distance < LANES; distance *= 2u) { largest = max(largest, subgroupShuffleXor(largest, distance)); }
      var scale = 1.0;
      if (largest > rowMax + GROWTH) {
        // Before the first position that a row sees there is nothing to be scaled.
        if (rowMax > NONE) {
          scale = exp2(rowMax - largest);
          if (column == 0u) { atomicAdd(&growths[0], 1u); }
        }
        rowMax = largest;
      }
      if (column == 0u) { rowScale[row] = scale; }
      var total = 0.0;
#for c COLUMNS
      let weight_$(c) = f16(select(0.0, exp2(score_$(c) - rowMax + SHIFT), isSeen_$(c)));
      weights[row * WEIGHT_STRIDE + column_$(c)] = weight_$(c);
      total += f32(weight_$(c));
#endfor
      for (var distance = 1u; distance < LANES; distance *= 2u) { total += subgroupShuffleXor(total, distance); }
      rowSum = rowSum * scale + total;
    }
    let growthsNow = workgroupUniformLoad(&growths[0]);
    if (growthsNow != growthsSeen) {
      growthsSeen = growthsNow;
#for m FRAG_ROWS
#for n FRAG_COLS
      subgroupMatrixStore<row_major>(&scores, subgroup * 256u, sums_$(m)_$(n), 16u);
      workgroupBarrier();
      for (var i = lane; i < 256u; i += SUBGROUP) { scores[subgroup * 256u + i] *= rowScale[sumRow + $(m)u * 16u + i / 16u]; }
      workgroupBarrier();
      sums_$(m)_$(n) = subgroupMatrixLoad<Sums, row_major>(&scores, subgroup * 256u, 16u);
      workgroupBarrier();
#endfor
#endfor
    }
#for k TILE_FRAGS
    {
#for m FRAG_ROWS
      let left_$(m) = subgroupMatrixLoad<Left, row_major>(&weights, (sumRow + $(m)u * 16u) * WEIGHT_STRIDE + $(k)u * 16u, WEIGHT_STRIDE);
#endfor
#for n FRAG_COLS
      let values_$(n) = subgroupMatrixLoad<Right, row_major>(&tiles, VALUES + $(k)u * 16u * STRIDE + sumColumn + $(n)u * 16u, STRIDE);
#for m FRAG_ROWS
      sums_$(m)_$(n) = subgroupMatrixMultiplyAccumulate(left_$(m), values_$(n), sums_$(m)_$(n));
#endfor
#endfor
    }
#endfor
  }

#if SINKS
  rowSum += exp2(sinks[kvHead * HEADS_PER_KV + row % HEADS_PER_KV] * LOG2_E - rowMax + SHIFT);
#endif
  workgroupBarrier();
  if (column == 0u) { rowScale[row] = rowSum; }
#for m FRAG_ROWS
#for n FRAG_COLS
  subgroupMatrixStore<row_major>(&scores, subgroup * 256u, sums_$(m)_$(n), 16u);
  workgroupBarrier();
  for (var i = lane; i < 256u; i += SUBGROUP) {
    let outRow = sumRow + $(m)u * 16u + i / 16u;
    let d = sumColumn + $(n)u * 16u + i % 16u;
    let token = firstToken + outRow / HEADS_PER_KV;
    if (token <= lastToken) {
      let head = kvHead * HEADS_PER_KV + outRow % HEADS_PER_KV;
      let position = tokens[token].position;
      let quad = tileAt(last.pages, position) + PAGE_TOKENS * KV_QUADS + kvHead * QUADS + d / 4u;
      let value = pages[quad][d % 4u];
      var result = select(scores[subgroup * 256u + i] / rowScale[outRow], value, notFinite(bitcast<u32>(value)) != 0u);
#if GATED
      result *= sigmoid(inputs[token * IN_STRIDE + head * 2u * HEAD_DIM + HEAD_DIM + d]);
#endif
      out[(token * HEADS + head) * HEAD_DIM + d] = result;
    }
  }
  workgroupBarrier();
#endfor
#endfor
}
