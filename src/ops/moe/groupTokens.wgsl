// Sorts (token, rank) pairs by expert for the grouped mat-mul: pairs of the experts that are in a slot, and tiles of at
// most TILE pairs of one expert. Which pair of an expert comes first is left open; every pair's result is its own. An expert's
// pairs begin at a multiple of STEP in the list, at the same place whichever experts are in slots. PLACES_AT: where in the list
// each pair is.
const WG = 256u;
const SHARE = (EXPERTS + WG - 1u) / WG; // experts of a thread
const MISSING = 0xffffffffu;

struct Step { tokens: u32, runs: u32, pad0: u32, pad1: u32 }
struct Layer { layer: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<uniform> which: Layer;
@group(0) @binding(2) var<storage, read> slotTable: array<u32>; // [layers, experts]
@group(0) @binding(3) var<storage, read> choice: array<u32>; // [layers, MAX_TOKENS, K]
@group(0) @binding(4) var<storage, read_write> groups: array<u32>; // [0] tiles, [1] length of the list; 4 per tile: slot, first, count; pairs at PAIRS_AT

var<workgroup> counts: array<atomic<u32>, EXPERTS>;
var<workgroup> starts: array<u32, EXPERTS>;
var<workgroup> tileStarts: array<u32, EXPERTS>;
var<workgroup> sums: array<vec2<u32>, WG>; // places and tiles

// Never a wild index, whatever a router has left.
fn expertOf(pair: u32) -> u32 { return min(choice[which.layer * MAX_TOKENS * K + pair], EXPERTS - 1u); }

// Places and tiles of an expert.
fn roomOf(expert: u32) -> vec2<u32> {
  let count = atomicLoad(&counts[expert]);
  let isIn = slotTable[which.layer * EXPERTS + expert] != MISSING;
  return vec2<u32>((count + STEP - 1u) / STEP * STEP, select(0u, (count + TILE - 1u) / TILE, isIn));
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) thread: u32) {
  for (var i = thread; i < EXPERTS; i += WG) { atomicStore(&counts[i], 0u); }
  workgroupBarrier();
  let pairs = step.tokens * K;
  for (var i = thread; i < pairs; i += WG) { atomicAdd(&counts[expertOf(i)], 1u); }
  workgroupBarrier();
  // Where each expert begins: a thread adds up its share, what the threads before it have is added up in steps.
  let begin = min(thread * SHARE, EXPERTS);
  let end = min(begin + SHARE, EXPERTS);
  var own = vec2<u32>();
  for (var i = begin; i < end; i++) { own += roomOf(i); }
  sums[thread] = own;
  workgroupBarrier();
  for (var reach = 1u; reach < WG; reach *= 2u) {
    var before = vec2<u32>();
    if (thread >= reach) { before = sums[thread - reach]; }
    workgroupBarrier();
    sums[thread] += before;
    workgroupBarrier();
  }
  var at = sums[thread] - own;
  for (var i = begin; i < end; i++) {
    starts[i] = at.x;
    tileStarts[i] = at.y;
    at += roomOf(i);
  }
  if (thread == WG - 1u) {
    groups[0] = sums[thread].y;
    groups[1] = sums[thread].x;
  }
  workgroupBarrier();
  for (var i = thread; i < EXPERTS; i += WG) {
    let slot = slotTable[which.layer * EXPERTS + i];
    let count = atomicLoad(&counts[i]);
    if (slot != MISSING) {
      for (var first = 0u; first < count; first += TILE) {
        let at = 4u + (tileStarts[i] + first / TILE) * 4u;
        groups[at] = slot;
        groups[at + 1u] = starts[i] + first;
        groups[at + 2u] = min(TILE, count - first);
      }
    }
    atomicStore(&counts[i], 0u);
  }
  workgroupBarrier();
  for (var i = thread; i < pairs; i += WG) {
    let expert = expertOf(i);
    if (slotTable[which.layer * EXPERTS + expert] != MISSING) {
      let place = starts[expert] + atomicAdd(&counts[expert], 1u);
      groups[PAIRS_AT + place] = i;
#if PLACES_AT
      groups[PLACES_AT + i] = place;
#endif
    }
  }
}
