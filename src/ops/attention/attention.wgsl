// Softmax attention over paged keys and values. One workgroup takes QUERIES query tokens, HEADS_TILE heads of one kv
// head, and all positions that they see; the output is final, by its gate where there is one. Tiles of TILE positions lie at absolute multiples, and a masked position adds
// exactly nothing, so a token's result does not depend on the tokens beside it. WINDOW: a token sees that many positions, its
// own the last of them; 0: all. PARTS threads share the scores of KEYS positions. FIRST_ROW: what is before a token's firstRow was never written. SINKS: one more logit per head, which has weight and no value.
#include activations
#include step
const HEADS_PER_KV = HEADS / KV_HEADS;
const ROWS = HEADS_TILE * QUERIES; // softmax rows per workgroup
const WG = 128u;
const QUADS = HEAD_DIM / 4u;
const KV_WIDTH = KV_HEADS * HEAD_DIM;

struct Step { tokens: u32, runs: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(2) var<storage, read> pageTable: array<u32>;
@group(0) @binding(3) var<storage, read> queries: array<vec4<f32>>; // [tokens, heads, headDim]
@group(0) @binding(4) var<storage, read> pages: array<vec4<f32>>; // [pages][key, value][PAGE_TOKENS][kvHeads * headDim]
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [tokens, heads, headDim]
#if GATED
@group(0) @binding(6) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: per head query, gate
#endif
#if SINKS
@group(0) @binding(7) var<storage, read> sinks: array<f32>; // [heads]
#endif

var<workgroup> q: array<vec4<f32>, ROWS * QUADS>;
var<workgroup> scores: array<f32, ROWS * TILE>;
var<workgroup> partScores: array<f32, PARTS * ROWS * TILE>; // [part][row][column]
var<workgroup> rowMax: array<f32, ROWS>;
var<workgroup> rowSum: array<f32, ROWS>;
var<workgroup> rowScale: array<f32, ROWS>;

fn queryToken(first: u32, row: u32) -> u32 { return min(first + row / HEADS_TILE, step.tokens - 1u); }

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let firstHead = group.x * HEADS_TILE;
  let kvHead = firstHead / HEADS_PER_KV;
  let first = group.y * QUERIES;
  // Queries of one workgroup belong to one run: the host cuts tiles so.
  let last = tokens[queryToken(first, ROWS - 1u)];
  let tiles = (last.position + TILE) / TILE; // ceil((position + 1) / TILE)
#if FIRST_ROW
  let firstRow = tokens[first].firstRow;
  let oldest = firstRow / TILE;
#elif WINDOW > 0
  let firstSeen = tokens[first].position + 1u;
  let oldest = select(firstSeen - WINDOW, 0u, firstSeen < WINDOW) / TILE;
#else
  const oldest = 0u;
#endif
  for (var i = thread; i < ROWS * QUADS; i += WG) {
    let row = i / QUADS;
    q[i] = queries[(queryToken(first, row) * HEADS + firstHead + row % HEADS_TILE) * QUADS + i % QUADS];
  }
  for (var row = thread; row < ROWS; row += WG) {
#if SINKS
    rowMax[row] = sinks[firstHead + row % HEADS_TILE];
    rowSum[row] = 1.0;
#else
    rowMax[row] = -1e30;
    rowSum[row] = 0.0;
#endif
  }
  // Thread t owns quads t, t + WG, … of the ROWS * QUADS output values.
  var sums: array<vec4<f32>, OWNED>;
  workgroupBarrier();
  for (var tile = oldest; tile < tiles; tile++) {
    let position = tile * TILE;
    let page = pageTable[last.pages + position / PAGE_TOKENS];
    let keys = ((page * 2u) * PAGE_TOKENS + position % PAGE_TOKENS) * (KV_WIDTH / 4u) + kvHead * QUADS;
    let values = keys + PAGE_TOKENS * (KV_WIDTH / 4u);
    // Scores: a thread takes every PARTS-th quad of KEYS keys, against all rows.
    for (var i = thread; i < PARTS * TILE / KEYS; i += WG) {
      let part = i % PARTS;
      let column = i / PARTS;
      let key = keys + column * (KV_WIDTH / 4u);
      const nextKey = TILE / KEYS * (KV_WIDTH / 4u);
      var totals = array<f32, ROWS * KEYS>(); // said aloud: Dawn clears a variable without a value once, not each time around a loop
      // Four quads of each key at a time: their loads overlap.
      for (var d = part; d < QUADS; d += 4u * PARTS) {
        var k: array<vec4<f32>, 4u * KEYS>;
        for (var n = 0u; n < 4u * KEYS; n++) { k[n] = pages[key + n / 4u * nextKey + min(d + n % 4u * PARTS, QUADS - 1u)]; }
        for (var n = 0u; n < 4u; n++) {
          let at = d + n * PARTS;
          if (at < QUADS) {
            for (var row = 0u; row < ROWS; row++) {
              let query = q[row * QUADS + at];
              for (var own = 0u; own < KEYS; own++) { totals[own * ROWS + row] += dot(query, k[own * 4u + n]); }
            }
          }
        }
      }
      for (var n = 0u; n < ROWS * KEYS; n++) {
        partScores[(part * ROWS + n % ROWS) * TILE + column + n / ROWS * (TILE / KEYS)] = totals[n];
      }
    }
    workgroupBarrier();
    for (var i = thread; i < ROWS * TILE; i += WG) {
      var score = 0.0;
      for (var part = 0u; part < PARTS; part++) { score += partScores[part * ROWS * TILE + i]; }
      let own = tokens[queryToken(first, i / TILE)].position;
#if FIRST_ROW
      let isSeen = position + i % TILE <= own && position + i % TILE >= firstRow;
#elif WINDOW > 0
      let isSeen = position + i % TILE <= own && position + i % TILE + WINDOW > own;
#else
      let isSeen = position + i % TILE <= own;
#endif
      scores[i] = select(-1e30, score * SCALE, isSeen);
    }
    workgroupBarrier();
    // Every thread of a row finds the row's largest score by itself: reading is cheaper than meeting.
    for (var i = thread; i < ROWS * TILE; i += WG) {
      let row = i / TILE;
      var largest = rowMax[row];
      for (var c = 0u; c < TILE; c++) { largest = max(largest, scores[row * TILE + c]); }
      partScores[i] = select(exp(scores[i] - largest), 0.0, scores[i] <= -1e30);
      if (i % TILE == 0u) { partScores[ROWS * TILE + row] = largest; }
    }
    workgroupBarrier();
    for (var row = thread; row < ROWS; row += WG) {
      let largest = partScores[ROWS * TILE + row];
      var total = 0.0;
      for (var c = 0u; c < TILE; c++) { total += partScores[row * TILE + c]; }
      let scale = exp(rowMax[row] - largest);
      rowSum[row] = rowSum[row] * scale + total;
      rowMax[row] = largest;
      rowScale[row] = scale;
    }
    workgroupBarrier();
    for (var own = 0u; own < OWNED; own++) { sums[own] *= rowScale[min((thread + own * WG) / QUADS, ROWS - 1u)]; }
    // Rows past the last position were never written: they may hold anything, and 0 times anything may be NaN.
    let columns = min(TILE, last.position + 1u - position);
#if FIRST_ROW
    let firstColumn = select(0u, firstRow - position, firstRow > position);
#else
    const firstColumn = 0u;
#endif
    if (WG % QUADS == 0u) {
      // All of a thread's sums are of the same quad. Eight rows at a time: their loads overlap.
      for (var column = 0u; column < columns; column += 8u) {
        var v: array<vec4<f32>, 8>;
        for (var n = 0u; n < 8u; n++) { v[n] = pages[values + clamp(column + n, firstColumn, columns - 1u) * (KV_WIDTH / 4u) + thread % QUADS]; }
        for (var n = 0u; n < 8u; n++) { // beside the columns the weight is 0
          for (var own = 0u; own < OWNED; own++) {
            sums[own] += partScores[min((thread + own * WG) / QUADS, ROWS - 1u) * TILE + column + n] * v[n];
          }
        }
      }
    } else {
      for (var column = firstColumn; column < columns; column++) {
        for (var own = 0u; own < OWNED; own++) {
          let i = min(thread + own * WG, ROWS * QUADS - 1u);
          sums[own] += partScores[(i / QUADS) * TILE + column] * pages[values + column * (KV_WIDTH / 4u) + i % QUADS];
        }
      }
    }
    workgroupBarrier();
  }
  for (var own = 0u; own < OWNED; own++) {
    let i = thread + own * WG;
    let row = i / QUADS;
    let token = first + row / HEADS_TILE;
    if (i < ROWS * QUADS && token < step.tokens) {
      let head = firstHead + row % HEADS_TILE;
      let value = sums[own] / rowSum[row];
      let column = (i % QUADS) * 4u;
      for (var c = 0u; c < 4u; c++) {
#if GATED
        let gate = inputs[token * IN_STRIDE + head * 2u * HEAD_DIM + HEAD_DIM + column + c];
        out[(token * HEADS + head) * HEAD_DIM + column + c] = value[c] * sigmoid(gate);
#else
        out[(token * HEADS + head) * HEAD_DIM + column + c] = value[c];
#endif
      }
    }
  }
}
