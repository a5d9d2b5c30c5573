// A token's K experts: the rank of an expert is the number of experts before it (larger logit, or equal and lower index),
// and ranks below K are the choice. Weights are the softmax over the chosen, which is the softmax over all renormalized. A
// logit that is not finite makes all weights NaN, chosen or not: it must not vanish. Other routers score first (see
// routerScores.wgsl): SCORES.
// Looks up the slots; what is not in a slot raises the miss flag, and kernels of later layers then do nothing. Where the
// host computes this layer's missing experts (status[1]), they weigh nothing here instead, and their weights are left for it.
// SHARED: the shared expert is in a slot too and comes last, 1: weighted by its own gate, 2: as it is. One workgroup per token; more of
// them choose for the next layers by logits that follow: guesses, to read ahead by, and no more than the choice.
#include activations
#include finite
#if SCORES
#include routerScores
#endif
const QUADS = (EXPERTS + 3u) / 4u;
const MISSING = 0xffffffffu;
const NAN = 0x7fc00000u;

struct Layer { layer: u32, sharedSlot: u32, layers: u32, spareSlot: u32, leftRow: u32, weightsRow: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> which: Layer;
@group(0) @binding(1) var<storage, read> logits: array<f32>; // [tokens, LOGITS_STRIDE]
@group(0) @binding(2) var<storage, read> slotTable: array<u32>; // [layers, experts]
@group(0) @binding(3) var<storage, read_write> choice: array<u32>; // [layers + guesses, MAX_TOKENS, K]: experts; row leftRow: weights of those left to the host, as bits; from weightsRow on, in prompts: all weights, by layer
@group(0) @binding(4) var<storage, read_write> mixing: array<vec2<u32>>; // [tokens, RANKS]: slot, weight as bits
@group(0) @binding(5) var<storage, read_write> status: array<atomic<u32>>; // [0] 1 + the layer of the first miss, [1] 1 + the layer that the host helps
#if SELECTION_BIAS
@group(0) @binding(6) var<storage, read> selectionBias: array<f32>; // [1 + guesses, experts]
#endif

var<workgroup> values: array<vec4<f32>, QUADS>;
var<workgroup> chosen: array<u32, K>;
var<workgroup> flag: u32;
var<workgroup> isWrong: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  if (thread == 0u) {
    flag = atomicLoad(&status[0]);
    isWrong = 0u;
  }
  let missed = workgroupUniformLoad(&flag);
  if (missed != 0u && missed != which.layer + 1u) { return; }
  let token = group.x;
  let ahead = group.y;
  let row = token * LOGITS_STRIDE + select(0u, 1u, ahead > 0u) + ahead * EXPERTS;
  for (var quad = thread; quad < QUADS; quad += WG) {
    var four = vec4<f32>(-3.4e38); // past the last expert: never before anyone
    for (var c = 0u; c < 4u; c++) {
      if (quad * 4u + c < EXPERTS) {
        four[c] = logits[row + quad * 4u + c];
        if (notFinite(bitcast<u32>(four[c])) != 0u) { isWrong = 1u; } // whoever writes writes the same
#if SELECTION_BIAS
        if (notFinite(bitcast<u32>(selectionBias[ahead * EXPERTS + quad * 4u + c])) != 0u) { isWrong = 1u; }
#endif
      }
    }
    values[quad] = four;
  }
  // A NaN among the logits leaves ranks empty: any expert is better than a wild index.
  for (var i = thread; i < K; i += WG) { chosen[i] = i; }
  workgroupBarrier();
#if SCORES
  scoreAll(ahead, thread);
#endif
  for (var i = thread; i < EXPERTS; i += WG) {
#if SCORES
    let value = vec4<f32>(values[i / 4u][i % 4u]);
#else
    let value = vec4<f32>(logits[row + i]);
#endif
    var before = vec4<u32>();
    for (var quad = 0u; quad < QUADS; quad++) {
      let other = values[quad];
      let index = vec4<u32>(quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
      before += select(vec4<u32>(0u), vec4<u32>(1u), (other > value) | ((other == value) & (index < vec4<u32>(i))));
    }
    let rank = before.x + before.y + before.z + before.w;
    if (rank < K) { chosen[rank] = i; }
  }
  workgroupBarrier();
#if SELECTION_BIAS
  sortChosen(row, thread);
#endif
  if (thread < K) {
    let expert = chosen[thread];
    let choiceRow = select(which.layer, which.layers + ahead - 1u, ahead > 0u);
    choice[(choiceRow * MAX_TOKENS + token) * K + thread] = expert;
    if (ahead == 0u) {
#if SCORES
      var total = 0.0;
      for (var i = 0u; i < K; i++) { total += scoreOf(chosen[i]); }
      let share = select(scoreOf(expert), scoreOf(expert) / total, RENORMALIZE);
#else
      let largest = logits[row + chosen[0]];
      var total = 0.0;
      for (var i = 0u; i < K; i++) { total += exp(logits[row + chosen[i]] - largest); }
      let share = exp(logits[row + expert] - largest) / total;
#endif
      var slot = slotTable[which.layer * EXPERTS + expert];
#if SCALED
      var weight = select(bitcast<u32>(share * f32(SCALE)), NAN, isWrong != 0u);
#else
      var weight = select(bitcast<u32>(share), NAN, isWrong != 0u);
#endif
#if CHECK_MISSES
      var left = MISSING; // nothing is
      if (slot == MISSING) {
        if (atomicLoad(&status[1]) == which.layer + 1u) {
          left = weight;
          slot = which.spareSlot; // finite numbers, whatever they are
          weight = 0u;
        } else {
          atomicStore(&status[0], which.layer + 1u);
        }
      }
      choice[(which.leftRow * MAX_TOKENS + token) * K + thread] = left;
#else
      choice[((which.weightsRow + which.layer) * MAX_TOKENS + token) * K + thread] = weight;
#endif
      mixing[token * RANKS + thread] = vec2<u32>(slot, weight);
    }
  }
#if SHARED > 0
  if (thread == K && ahead == 0u) {
#if SHARED == 1
    let weight = sigmoid(logits[row + EXPERTS]);
#else
    let weight = 1.0;
#endif
    mixing[token * RANKS + K] = vec2<u32>(which.sharedSlot, bitcast<u32>(weight));
  }
#endif
}
