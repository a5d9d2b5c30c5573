// A token's K experts by its router's logits: the rank of an expert is the number of experts before it (larger logit, or equal
// and lower index), and ranks below K are the choice. Weights are the softmax over the chosen, which is the softmax over all
// renormalized. A logit that is not finite makes all weights NaN, chosen or not: it must not vanish. Other routers score first
// (see routerScores.wgsl): SCORES. By all WG threads: logitQuad, prepareChoice, a barrier, makeChoice. LANES: of each subgroup, where
// that is known beforehand; then experts are not counted but taken one after the other, the best of all lanes' best.
#include activations
#include finite
#if SCORES
#include routerScores
#endif
const QUADS = (EXPERTS + 3u) / 4u;
const NAN = 0x7fc00000u;

@group(0) @binding(8) var<storage, read> logits: array<f32>; // [tokens, LOGITS_STRIDE]
@group(0) @binding(9) var<storage, read> slotTable: array<u32>; // [layers, experts]
#if SELECTION_BIAS
@group(0) @binding(10) var<storage, read> selectionBias: array<f32>; // [1 + guesses, experts]
#endif

var<workgroup> values: array<vec4<f32>, QUADS>;
var<workgroup> chosen: array<u32, K>;
var<workgroup> isWrong: u32;

// Four of the logits that begin at `row`.
fn logitQuad(row: u32, quad: u32) -> vec4<f32> {
  var four = vec4<f32>(-3.4e38); // past the last expert: never before anyone
  for (var c = 0u; c < 4u; c++) {
    if (quad * 4u + c < EXPERTS) { four[c] = logits[row + quad * 4u + c]; }
  }
  return four;
}

// `own`: the thread's first quad, loaded before something else was done. A quad has one writer.
fn prepareChoice(row: u32, own: vec4<f32>, thread: u32) {
  if (thread == 0u) { isWrong = 0u; }
  if (thread < QUADS) { values[thread] = own; }
  for (var quad = thread + WG; quad < QUADS; quad += WG) { values[quad] = logitQuad(row, quad); }
  // A NaN among the logits leaves ranks empty: any expert is better than a wild index.
  for (var i = thread; i < K; i += WG) { chosen[i] = i; }
}

#if LANES
const LANE_QUADS = (QUADS + LANES - 1u) / LANES;
const LANE_EXPERTS = 4u * LANE_QUADS;

// In the order of the values; 0 is behind all of them.
fn keyOf(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let key = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
  return select(key, 0x80000000u, bits == 0x80000000u); // -0 is 0
}

// By every subgroup, and written by the first. A lane has neighbours, so that of equals the lowest lane has the lowest index.
fn takeBest(thread: u32, lane: u32) {
  var keys: array<u32, LANE_EXPERTS>;
  for (var n = 0u; n < LANE_QUADS; n++) {
    let quad = lane * LANE_QUADS + n;
    let four = values[min(quad, QUADS - 1u)];
    for (var c = 0u; c < 4u; c++) { keys[4u * n + c] = select(0u, keyOf(four[c]), quad * 4u + c < EXPERTS); }
  }
  for (var rank = 0u; rank < K; rank++) {
    var best = 0u;
    for (var i = 0u; i < LANE_EXPERTS; i++) { best = max(best, keys[i]); }
    let top = subgroupMax(best);
    if (lane == firstTrailingBit(subgroupBallot(best == top).x)) {
      var at = 0u;
      for (var i = LANE_EXPERTS; i > 0u; i--) { at = select(at, i - 1u, keys[i - 1u] == top); }
      for (var i = 0u; i < LANE_EXPERTS; i++) { keys[i] = select(keys[i], 0u, i == at); }
      if (thread == lane) { chosen[rank] = min(lane * LANE_EXPERTS + at, EXPERTS - 1u); }
    }
  }
}
#endif

fn makeChoice(row: u32, ahead: u32, thread: u32, lane: u32) {
#if SCORES
  scoreAll(ahead, thread);
#endif
  for (var i = thread; i < EXPERTS; i += WG) {
    let logit = logits[row + i];
    // Whoever writes writes the same.
    if (notFinite(bitcast<u32>(logit)) != 0u) { isWrong = 1u; }
#if SELECTION_BIAS
    if (notFinite(bitcast<u32>(selectionBias[ahead * EXPERTS + i])) != 0u) { isWrong = 1u; }
#endif
#if !LANES
#if SCORES
    let value = vec4<f32>(values[i / 4u][i % 4u]);
#else
    let value = vec4<f32>(logit);
#endif
    var before = vec4<u32>();
    for (var quad = 0u; quad < QUADS; quad++) {
      let other = values[quad];
      let index = vec4<u32>(quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
      before += select(vec4<u32>(0u), vec4<u32>(1u), (other > value) | ((other == value) & (index < vec4<u32>(i))));
    }
    let rank = before.x + before.y + before.z + before.w;
    if (rank < K) { chosen[rank] = i; }
#endif
  }
#if LANES
  takeBest(thread, lane);
#endif
  workgroupBarrier();
#if SELECTION_BIAS
  sortChosen(row, thread);
#endif
}

// The weight of the expert at a rank, as bits.
fn chosenWeight(row: u32, rank: u32) -> u32 {
  let expert = chosen[rank];
#if SCORES
  var total = 0.0;
  for (var i = 0u; i < K; i++) { total += scoreOf(chosen[i]); }
  var share = select(scoreOf(expert), scoreOf(expert) / total, RENORMALIZE);
#else
  let largest = logits[row + chosen[0]];
  var total = 0.0;
  for (var i = 0u; i < K; i++) { total += exp(logits[row + chosen[i]] - largest); }
  var share = exp(logits[row + expert] - largest) / total;
#endif
#if SCALED
  share *= f32(SCALE);
#endif
  return select(bitcast<u32>(share), NAN, isWrong != 0u);
}

#if SHARED > 0
// The weight of a shared expert that has a slot: by its gate, or 1.
fn sharedWeight(row: u32) -> u32 {
#if SHARED == 1
  return bitcast<u32>(sigmoid(logits[row + EXPERTS]));
#else
  return bitcast<u32>(1.0);
#endif
}
#endif
