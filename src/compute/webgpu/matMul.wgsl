// Y = X W^T for many tokens, by tiles of TOKENS tokens and 64 or 128 rows through workgroup memory. Each output element is
// one sum over units of 32 columns in order, whatever the tile holds besides: the result of a token does not depend on
// the tokens around it. GROUPED: the tokens of one expert, gathered by the pair list of groupTokens.
#include weights
#include dot4

const WG = 256u;
const ROWS = 16u * ROWS_PER_THREAD;
const TOKENS = 16u * TOKENS_PER_THREAD;

struct Step { tokens: u32, runs: u32, pad0: u32, pad1: u32 }

@group(0) @binding(2) var<uniform> segments: Segments;
#include segments
@group(0) @binding(3) var<uniform> step: Step;
#if FAST
@group(0) @binding(4) var<storage, read> x: array<u32>; // [rows, cols / 4] four signed bytes
@group(0) @binding(5) var<storage, read> xScales: array<vec2<f32>>; // [rows, cols / 32] scale, scale * sum
#else
@group(0) @binding(4) var<storage, read> x: array<f32>; // [rows, cols]
@group(0) @binding(5) var<storage, read> xScales: array<vec2<f32>>;
#endif
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [rows, outStride]
#if GROUPED
@group(0) @binding(7) var<storage, read> groups: array<u32>; // [0] tiles; then 4 per tile: slot, first, count; pairs
#endif

#if FAST
var<workgroup> wTile: array<u32, 8u * ROWS>; // [word][row]
var<workgroup> xTile: array<u32, 8u * TOKENS>; // [word][token]
var<workgroup> wScale: array<vec2<f32>, ROWS>;
var<workgroup> xScale: array<vec2<f32>, TOKENS>;
#else
var<workgroup> wTile: array<f32, 32u * ROWS>; // [column][row]
var<workgroup> xTile: array<f32, 32u * TOKENS>; // [column][token]
#endif

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let segment = segments.list[segmentOf(group.x)];
  let firstRow = (group.x - segment.firstTile) * ROWS;
  let units = segments.cols / 32u;
#if GROUPED
  if (group.y >= groups[0]) { return; }
  let slot = groups[4u + group.y * 4u];
  let firstPair = groups[4u + group.y * 4u + 1u];
  let tokens = groups[4u + group.y * 4u + 2u];
  let weightBase = segment.weight + slot * segments.expertLoads;
  let scaleBase = segment.scales + slot * segments.expertHalves;
  let biasBase = segment.biases + slot * segments.expertHalves;
#else
  let firstToken = group.y * TOKENS;
  let tokens = min(TOKENS, step.tokens - firstToken);
  let weightBase = segment.weight;
  let scaleBase = segment.scales;
  let biasBase = segment.biases;
#endif
  let tx = thread & 15u; // rows tx + 16 j
  let ty = thread >> 4u; // tokens ty + 16 i
  var sums: array<array<f32, ROWS_PER_THREAD>, TOKENS_PER_THREAD>;

  for (var unit = 0u; unit < units; unit++) {
    // Stage one unit: a thread unpacks a row's or a token's 32 columns.
    for (var at = thread; at < ROWS; at += WG) {
      let row = min(firstRow + at, segment.rows - 1u);
      var load = loadUnit(weightBase + (row * units + unit) * UNIT_LOADS);
#if BITS < 16
      let index = row * (segments.cols / GROUP) + unit * 32u / GROUP;
      let scale = half(scaleBase + index);
      let bias = half(biasBase + index);
#endif
#if FAST
      for (var word = 0u; word < 8u; word++) { wTile[word * ROWS + at] = unitWord(&load, word); }
      wScale[at] = vec2<f32>(scale, bias + SHIFT * scale);
#else
      for (var quad = 0u; quad < 8u; quad++) {
#if BITS < 16
        let values = unitQuad(&load, quad) * scale + bias;
#else
        let values = unitQuad(&load, quad);
#endif
        for (var i = 0u; i < 4u; i++) { wTile[(quad * 4u + i) * ROWS + at] = values[i]; }
      }
#endif
    }
    for (var at = thread; at < TOKENS * 8u; at += WG) {
      let token = at >> 3u;
      let part = at & 7u;
      if (token < tokens) {
#if GROUPED
        let row = groups[PAIRS_AT + firstPair + token] / ROWS_SHARE;
#else
        let row = firstToken + token;
#endif
#if FAST
        xTile[part * TOKENS + token] = x[(row * units + unit) * 8u + part];
        if (part == 0u) { xScale[token] = xScales[row * units + unit]; }
#else
        let source = (row * units + unit) * 32u + part * 4u;
        for (var i = 0u; i < 4u; i++) { xTile[(part * 4u + i) * TOKENS + token] = x[source + i]; }
#endif
      }
    }
    workgroupBarrier();
#if FAST
    var dots: array<array<i32, ROWS_PER_THREAD>, TOKENS_PER_THREAD>;
    for (var word = 0u; word < 8u; word++) {
      var w: array<u32, ROWS_PER_THREAD>;
      for (var j = 0u; j < ROWS_PER_THREAD; j++) { w[j] = wTile[word * ROWS + tx + 16u * j]; }
      for (var i = 0u; i < TOKENS_PER_THREAD; i++) {
        let a = xTile[word * TOKENS + ty + 16u * i];
        for (var j = 0u; j < ROWS_PER_THREAD; j++) { dots[i][j] += dot4(w[j], a); }
      }
    }
    for (var i = 0u; i < TOKENS_PER_THREAD; i++) {
      let a = xScale[ty + 16u * i];
      for (var j = 0u; j < ROWS_PER_THREAD; j++) {
        let s = wScale[tx + 16u * j];
        sums[i][j] += s.x * a.x * f32(dots[i][j]) + s.y * a.y;
      }
    }
#else
    for (var column = 0u; column < 32u; column++) {
      var w: array<f32, ROWS_PER_THREAD>;
      for (var j = 0u; j < ROWS_PER_THREAD; j++) { w[j] = wTile[column * ROWS + tx + 16u * j]; }
      for (var i = 0u; i < TOKENS_PER_THREAD; i++) {
        let a = xTile[column * TOKENS + ty + 16u * i];
        for (var j = 0u; j < ROWS_PER_THREAD; j++) { sums[i][j] += w[j] * a; }
      }
    }
#endif
    workgroupBarrier();
  }

  for (var i = 0u; i < TOKENS_PER_THREAD; i++) {
    let token = ty + 16u * i;
    if (token >= tokens) { continue; }
#if GROUPED
    let outRow = groups[PAIRS_AT + firstPair + token];
#else
    let outRow = firstToken + token;
#endif
    for (var j = 0u; j < ROWS_PER_THREAD; j++) {
      let row = firstRow + tx + 16u * j;
      if (row < segment.rows) { y[outRow * segments.outStride + segment.out + row] = sums[i][j]; }
    }
  }
}
