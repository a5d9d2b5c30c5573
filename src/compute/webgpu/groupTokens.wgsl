// Sorts (token, rank) pairs by expert for the grouped mat-mul: pairs of the experts that are in a slot, and tiles of at
// most TILE pairs of one expert. Which pair of an expert comes first is left open; every pair's result is its own.
const WG = 256u;
const MISSING = 0xffffffffu;

struct Step { tokens: u32, runs: u32, pad0: u32, pad1: u32 }
struct Layer { layer: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<uniform> which: Layer;
@group(0) @binding(2) var<storage, read> slotTable: array<u32>; // [layers, experts]
@group(0) @binding(3) var<storage, read> choice: array<u32>; // [layers, MAX_TOKENS, K]
@group(0) @binding(4) var<storage, read_write> groups: array<u32>; // [0] tiles; 4 per tile: slot, first, count; pairs at PAIRS_AT

var<workgroup> counts: array<atomic<u32>, EXPERTS>;
var<workgroup> starts: array<u32, EXPERTS>;
var<workgroup> tileStarts: array<u32, EXPERTS>;

// Never a wild index, whatever a router has left.
fn expertOf(pair: u32) -> u32 { return min(choice[which.layer * MAX_TOKENS * K + pair], EXPERTS - 1u); }

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
  for (var i = thread; i < EXPERTS; i += WG) { atomicStore(&counts[i], 0u); }
  workgroupBarrier();
  let pairs = step.tokens * K;
  for (var i = thread; i < pairs; i += WG) { atomicAdd(&counts[expertOf(i)], 1u); }
  workgroupBarrier();
  if (thread == 0u) {
    var pair = 0u;
    var tile = 0u;
    for (var i = 0u; i < EXPERTS; i++) {
      starts[i] = pair;
      tileStarts[i] = tile;
      if (slotTable[which.layer * EXPERTS + i] != MISSING) {
        let count = atomicLoad(&counts[i]);
        pair += count;
        tile += (count + TILE - 1u) / TILE;
      }
    }
    groups[0] = tile;
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
      groups[PAIRS_AT + starts[expert] + atomicAdd(&counts[expert], 1u)] = i;
    }
  }
}
