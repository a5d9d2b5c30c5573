// A token's K experts with their weights and slots (see routerChoice.wgsl).
// What is not in a slot raises the miss flag, and kernels of later layers then do nothing. Where the
// host computes this layer's missing experts (status[1]), they weigh nothing here instead, and their weights are left for it.
// SHARED: the shared expert is in a slot too and comes last, 1: weighted by its own gate, 2: as it is. One workgroup per token; more of
// them choose for the next layers by logits that follow: guesses, to read ahead by, and no more than the choice.
#include routerChoice
const MISSING = 0xffffffffu;

struct Layer { layer: u32, sharedSlot: u32, layers: u32, spareSlot: u32, leftRow: u32, weightsRow: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> which: Layer;
@group(0) @binding(3) var<storage, read_write> choice: array<u32>; // [layers + guesses, MAX_TOKENS, K]: experts; row leftRow: weights of those left to the host, as bits; from weightsRow on, in prompts: all weights, by layer
@group(0) @binding(4) var<storage, read_write> mixing: array<vec2<u32>>; // [tokens, RANKS]: slot, weight as bits
@group(0) @binding(5) var<storage, read_write> status: array<atomic<u32>>; // [0] 1 + the layer of the first miss, [1] 1 + the layer that the host helps

var<workgroup> flag: u32;

@compute @workgroup_size(WG)
#include mainOfTeam
  if (thread == 0u) { flag = atomicLoad(&status[0]); }
  let missed = workgroupUniformLoad(&flag);
  if (missed != 0u && missed != which.layer + 1u) { return; }
  let token = group.x;
  let ahead = group.y;
  let row = token * LOGITS_STRIDE + select(0u, 1u, ahead > 0u) + ahead * EXPERTS;
  prepareChoice(row, logitQuad(row, thread), thread);
  workgroupBarrier();
  makeChoice(row, ahead, thread, lane);
  for (var rank = thread; rank < K; rank += WG) {
    let expert = chosen[rank];
    let choiceRow = select(which.layer, which.layers + ahead - 1u, ahead > 0u);
    choice[(choiceRow * MAX_TOKENS + token) * K + rank] = expert;
    if (ahead == 0u) {
      var slot = slotTable[which.layer * EXPERTS + expert];
      var weight = chosenWeight(row, rank);
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
      choice[(which.leftRow * MAX_TOKENS + token) * K + rank] = left;
#else
      choice[((which.weightsRow + which.layer) * MAX_TOKENS + token) * K + rank] = weight;
#endif
      mixing[token * RANKS + rank] = vec2<u32>(slot, weight);
    }
  }
#if SHARED > 0
  if (thread == K % WG && ahead == 0u) { mixing[token * RANKS + K] = vec2<u32>(which.sharedSlot, sharedWeight(row)); }
#endif
}
