// Y = X W^T for many tokens, by tiles of ROWS rows and TOKENS tokens through workgroup memory; a thread computes 4 x 4.
// Each output element is one sum over units of 32 columns in order, whatever the tile holds besides: the result of a
// token does not depend on the tokens around it. GROUPED: the tokens of one expert, by the pair list of groupTokens.
// BIAS: by column of the output row, or of the expert, in its slot. TEAMS: of float32 products, that take units by turns and add up
// what they have at the end: small ones wait for memory most of the time.
#include weightWords
#include dot4
#include segments
#if BIAS
#include slotFloat
#endif

const ROW_QUADS = ROWS / 4u;
const TOKEN_QUADS = TOKENS / 4u;
const TEAM = ROW_QUADS * TOKEN_QUADS; // threads of a tile
#if FAST
const WG = TEAM;
#else
const WG = TEAM * TEAMS;
#endif

struct Step { tokens: u32, runs: u32, pad0: u32, pad1: u32 }

@group(0) @binding(1) var<uniform> segments: Segments;
@group(0) @binding(2) var<uniform> step: Step;
#if FAST
@group(0) @binding(3) var<storage, read> x: array<u32>; // [rows, cols / 4] four signed bytes
@group(0) @binding(4) var<storage, read> xScales: array<vec2<f32>>; // [rows, cols / 32] scale, scale * sum
#else
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>; // [rows, cols]
@group(0) @binding(4) var<storage, read> xScales: array<vec2<f32>>;
#endif
@group(0) @binding(5) var<storage, read_write> y: array<f32>; // [rows, outStride]
#if GROUPED
@group(0) @binding(6) var<storage, read> groups: array<u32>; // [0] tiles; 4 per tile: slot, first, count; pairs at PAIRS_AT
#elif BIAS
@group(0) @binding(6) var<storage, read> biases: array<f32>; // [outStride]
#endif

#if FAST
const STAGE = 2u; // units staged at once
#if GROUP == 16
const HALVES = 2u; // scales of a unit
#else
const HALVES = 1u;
#endif
var<workgroup> wTile: array<vec4<u32>, STAGE * 8u * ROW_QUADS>; // [unit][packed word][row quad]
var<workgroup> xTile: array<vec4<u32>, STAGE * 8u * TOKEN_QUADS>; // [unit][packed word][token quad]
var<workgroup> wScale: array<vec4<f32>, STAGE * HALVES * ROW_QUADS>; // [unit][half][row quad]
var<workgroup> wBias: array<vec4<f32>, STAGE * HALVES * ROW_QUADS>;
var<workgroup> xScale: array<vec4<f32>, STAGE * TOKEN_QUADS>;
var<workgroup> xSum: array<vec4<f32>, STAGE * TOKEN_QUADS>;
const WORDS_AT_ONCE = 8u / BITS; // packed words that one weight word gives
#else
const STAGE = TEAMS; // each team has a unit of its own
var<workgroup> wTile: array<vec4<f32>, STAGE * 32u * ROW_QUADS>; // [column][row quad]
var<workgroup> xTile: array<vec4<f32>, STAGE * 32u * TOKEN_QUADS>; // [column][token quad]
#endif

#if GROUPED
fn inputRow(firstPair: u32, token: u32) -> u32 { return groups[PAIRS_AT + firstPair + token] / ROWS_SHARE; }
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let segment = segments.list[segmentOf(group.x)];
  let firstRow = (group.x - segment.firstTile) * ROWS;
  let lastRow = segment.rows - 1u;
  let units = segments.cols / 32u;
#if GROUPED
  if (group.y >= groups[0]) { return; }
  let slot = groups[4u + group.y * 4u];
  let firstToken = groups[4u + group.y * 4u + 1u]; // a pair
  let tokens = groups[4u + group.y * 4u + 2u];
  let weightBase = segment.weight + slot * segments.expertWords;
  let scaleBase = segment.scales + slot * segments.expertWords * 2u;
  let biasBase = segment.biases + slot * segments.expertWords * 2u;
#else
  let firstToken = group.y * TOKENS;
  let tokens = min(TOKENS, step.tokens - firstToken);
  let weightBase = segment.weight;
  let scaleBase = segment.scales;
  let biasBase = segment.biases;
#endif
  let rowWords = units * UNIT_WORDS;
  let tx = thread % ROW_QUADS;
#if FAST
  let ty = thread / ROW_QUADS;
#else
  let ty = thread % TEAM / ROW_QUADS;
  let team = thread / TEAM;
#endif
  let isBusy = ty * 4u < tokens;
  var sum0 = vec4<f32>();
  var sum1 = vec4<f32>();
  var sum2 = vec4<f32>();
  var sum3 = vec4<f32>();

  for (var firstUnit = 0u; firstUnit < units; firstUnit += STAGE) {
#if FAST
    for (var task = thread; task < STAGE * ROW_QUADS * BITS; task += WG) {
      let word = task % BITS;
      let quad = (task / BITS) % ROW_QUADS;
      let stage = task / (BITS * ROW_QUADS);
      let unit = min(firstUnit + stage, units - 1u);
      let row = vec4<u32>(firstRow + quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
      let at = weightBase + min(row, vec4<u32>(lastRow)) * rowWords + unit * UNIT_WORDS + word;
      let words = vec4<u32>(weights[at.x], weights[at.y], weights[at.z], weights[at.w]);
      let tile = stage * 8u * ROW_QUADS + quad;
      for (var i = 0u; i < WORDS_AT_ONCE; i++) {
#if BITS == 8
        wTile[tile + word * ROW_QUADS] = words ^ vec4<u32>(0x80808080u);
#elif BITS == 4
        let q = (words >> vec4<u32>(4u * i)) & vec4<u32>(0x0f0f0f0fu);
        wTile[tile + (word * 2u + i) * ROW_QUADS] = vec4<u32>(codeWord(q.x), codeWord(q.y), codeWord(q.z), codeWord(q.w));
#else
        wTile[tile + (word * 4u + i) * ROW_QUADS] = (words >> vec4<u32>(2u * i)) & vec4<u32>(0x03030303u);
#endif
      }
    }
    for (var task = thread; task < STAGE * HALVES * ROW_QUADS; task += WG) {
      let quad = task % ROW_QUADS;
      let half = task / ROW_QUADS % HALVES;
      let unit = min(firstUnit + task / (ROW_QUADS * HALVES), units - 1u);
      let row = min(vec4<u32>(firstRow + quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(lastRow));
      let a = unitScale(scaleBase, biasBase, scaleIndex(row.x, units, unit), half);
      let b = unitScale(scaleBase, biasBase, scaleIndex(row.y, units, unit), half);
      let c = unitScale(scaleBase, biasBase, scaleIndex(row.z, units, unit), half);
      let d = unitScale(scaleBase, biasBase, scaleIndex(row.w, units, unit), half);
      let scale = vec4<f32>(a.x, b.x, c.x, d.x);
      let bias = vec4<f32>(a.y, b.y, c.y, d.y);
      wScale[task] = scale;
#if BITS == 8
      wBias[task] = bias + 128.0 * scale; // q was shifted by 128 to fit a signed byte
#else
      wBias[task] = bias;
#endif
    }
    for (var task = thread; task < STAGE * TOKEN_QUADS * 8u; task += WG) {
      let word = task % 8u;
      let quad = (task / 8u) % TOKEN_QUADS;
      let stage = task / (8u * TOKEN_QUADS);
      let unit = min(firstUnit + stage, units - 1u);
      let token = min(vec4<u32>(quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(tokens - 1u));
#if GROUPED
      let row = vec4<u32>(inputRow(firstToken, token.x), inputRow(firstToken, token.y), inputRow(firstToken, token.z), inputRow(firstToken, token.w));
#else
      let row = firstToken + token;
#endif
      let at = (row * units + unit) * 8u + word;
      xTile[(stage * 8u + word) * TOKEN_QUADS + quad] = vec4<u32>(x[at.x], x[at.y], x[at.z], x[at.w]);
      if (word == 0u) {
        let a = xScales[row.x * units + unit];
        let b = xScales[row.y * units + unit];
        let c = xScales[row.z * units + unit];
        let d = xScales[row.w * units + unit];
        xScale[stage * TOKEN_QUADS + quad] = vec4<f32>(a.x, b.x, c.x, d.x);
        xSum[stage * TOKEN_QUADS + quad] = vec4<f32>(a.y, b.y, c.y, d.y);
      }
    }
    workgroupBarrier();
    if (isBusy) {
      for (var stage = 0u; stage < STAGE; stage++) {
        if (firstUnit + stage >= units) { break; }
        let s = xScale[stage * TOKEN_QUADS + ty];
#if GROUP == 16
        for (var half = 0u; half < HALVES; half++) {
#else
        { // a loop that is known to run once is slower nevertheless (performance-log.md)
          const half = 0u;
#endif
          var dot0 = vec4<i32>();
          var dot1 = vec4<i32>();
          var dot2 = vec4<i32>();
          var dot3 = vec4<i32>();
#if GROUP == 16
          var total = vec4<i32>();
#endif
          for (var i = 0u; i < 8u / HALVES; i++) {
            let word = half * 4u + i;
            let w = wTile[(stage * 8u + word) * ROW_QUADS + tx];
            let a = xTile[(stage * 8u + word) * TOKEN_QUADS + ty];
            dot0 += vec4<i32>(dot4(w.x, a.x), dot4(w.y, a.x), dot4(w.z, a.x), dot4(w.w, a.x));
            dot1 += vec4<i32>(dot4(w.x, a.y), dot4(w.y, a.y), dot4(w.z, a.y), dot4(w.w, a.y));
            dot2 += vec4<i32>(dot4(w.x, a.z), dot4(w.y, a.z), dot4(w.z, a.z), dot4(w.w, a.z));
            dot3 += vec4<i32>(dot4(w.x, a.w), dot4(w.y, a.w), dot4(w.z, a.w), dot4(w.w, a.w));
#if GROUP == 16
            const ones = 0x01010101u;
            total += vec4<i32>(dot4(a.x, ones), dot4(a.y, ones), dot4(a.z, ones), dot4(a.w, ones));
#endif
          }
          let scale = wScale[(stage * HALVES + half) * ROW_QUADS + tx];
          let bias = wBias[(stage * HALVES + half) * ROW_QUADS + tx];
#if GROUP == 16
          let t = s * vec4<f32>(total);
#else
          let t = xSum[stage * TOKEN_QUADS + ty];
#endif
          sum0 += scale * s.x * vec4<f32>(dot0) + bias * t.x;
          sum1 += scale * s.y * vec4<f32>(dot1) + bias * t.y;
          sum2 += scale * s.z * vec4<f32>(dot2) + bias * t.z;
          sum3 += scale * s.w * vec4<f32>(dot3) + bias * t.w;
        }
      }
    }
#else
    let staged = min(STAGE, units - firstUnit);
    for (var task = thread; task < staged * ROW_QUADS * 8u; task += WG) {
      let quad = task / 8u % ROW_QUADS;
      let part = task % 8u;
      let stage = task / (8u * ROW_QUADS);
      let unit = firstUnit + stage;
      let row = min(vec4<u32>(firstRow + quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(lastRow));
      let at = weightBase + row * rowWords + unit * UNIT_WORDS;
      var values = mat4x4<f32>(unitQuad(at.x, part), unitQuad(at.y, part), unitQuad(at.z, part), unitQuad(at.w, part));
#if BITS < 16
#if GROUP == 16
      let half = part / 4u;
#else
      const half = 0u;
#endif
      for (var i = 0u; i < 4u; i++) {
        let scale = unitScale(scaleBase, biasBase, scaleIndex(row[i], units, unit), half);
        values[i] = values[i] * scale.x + scale.y;
      }
#endif
      let columns = transpose(values);
      let column = stage * 32u + part * 4u;
      wTile[column * ROW_QUADS + quad] = columns[0];
      wTile[(column + 1u) * ROW_QUADS + quad] = columns[1];
      wTile[(column + 2u) * ROW_QUADS + quad] = columns[2];
      wTile[(column + 3u) * ROW_QUADS + quad] = columns[3];
    }
    for (var task = thread; task < staged * TOKEN_QUADS * 8u; task += WG) {
      let quad = task / 8u % TOKEN_QUADS;
      let part = task % 8u;
      let stage = task / (8u * TOKEN_QUADS);
      let unit = firstUnit + stage;
      let token = min(vec4<u32>(quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(tokens - 1u));
#if GROUPED
      let row = vec4<u32>(inputRow(firstToken, token.x), inputRow(firstToken, token.y), inputRow(firstToken, token.z), inputRow(firstToken, token.w));
#else
      let row = firstToken + token;
#endif
      let at = (row * units + unit) * 8u + part;
      let columns = transpose(mat4x4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]));
      let column = stage * 32u + part * 4u;
      xTile[column * TOKEN_QUADS + quad] = columns[0];
      xTile[(column + 1u) * TOKEN_QUADS + quad] = columns[1];
      xTile[(column + 2u) * TOKEN_QUADS + quad] = columns[2];
      xTile[(column + 3u) * TOKEN_QUADS + quad] = columns[3];
    }
    workgroupBarrier();
    if (isBusy && team < staged) {
      for (var column = team * 32u; column < team * 32u + 32u; column++) {
        let w = wTile[column * ROW_QUADS + tx];
        let a = xTile[column * TOKEN_QUADS + ty];
        sum0 += w * a.x;
        sum1 += w * a.y;
        sum2 += w * a.z;
        sum3 += w * a.w;
      }
    }
#endif
    workgroupBarrier();
  }

#if TEAMS > 1
  // The others' sums to the first team, in order.
  for (var other = 1u; other < TEAMS; other++) {
    if (team == other) {
      wTile[thread % TEAM] = sum0;
      wTile[TEAM + thread % TEAM] = sum1;
      wTile[2u * TEAM + thread % TEAM] = sum2;
      wTile[3u * TEAM + thread % TEAM] = sum3;
    }
    workgroupBarrier();
    if (team == 0u) {
      sum0 += wTile[thread];
      sum1 += wTile[TEAM + thread];
      sum2 += wTile[2u * TEAM + thread];
      sum3 += wTile[3u * TEAM + thread];
    }
    workgroupBarrier();
  }
  if (team > 0u) { return; }
#endif
#if BIAS
  var added = vec4<f32>();
  for (var j = 0u; j < 4u; j++) {
    let row = min(firstRow + tx * 4u + j, lastRow);
#if GROUPED
    let at = segment.bias + slot * segments.expertWords * FLOATS_PER_WORD + row;
    added[j] = slotFloat(weights[at / FLOATS_PER_WORD], at);
#else
    added[j] = biases[segment.out + row];
#endif
  }
  let sums = array<vec4<f32>, 4>(sum0 + added, sum1 + added, sum2 + added, sum3 + added);
#else
  let sums = array<vec4<f32>, 4>(sum0, sum1, sum2, sum3);
#endif
  for (var i = 0u; i < 4u; i++) {
    let token = ty * 4u + i;
    if (token >= tokens) { continue; }
#if GROUPED
    let outRow = groups[PAIRS_AT + firstToken + token];
#else
    let outRow = firstToken + token;
#endif
    let row = firstRow + tx * 4u;
    let at = outRow * segments.outStride + segment.out + row;
    for (var j = 0u; j < 4u; j++) {
      if (row + j < segment.rows) { y[at + j] = sums[i][j]; }
    }
  }
}
