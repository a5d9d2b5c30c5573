// y = W x for single tokens: the decode kernel. A team of TEAM threads computes ROWS rows, WG / TEAM teams share the
// input in workgroup memory. NORM: x is hidden * weight, and 1 / rms(hidden), being one number for all columns, is
// applied to the sums. SWIGLU: x is the activation of a row [gate | up]. ADD: y += instead of y =. Workgroup (token, tile): those of
// several tokens come one after the other, and all but the first find the weights near. RANKS: workgroup
// (tile, rank, token) computes the expert that the token's router put at this rank. BIAS: by column of the output row, or of the
// expert, in its slot. Does nothing after a miss. CHOOSE: every expert is in a slot, and each workgroup makes the router's choice by
// itself, which is less than waiting for a dispatch that makes it; the first one of a token writes it down.
#include vecWeights
#include dot4
#include segments
#include vecInput
#include teamSum
#include glu
#if BIAS
#include slotFloat
#endif

@group(0) @binding(2) var<uniform> segments: Segments;
#if CHOOSE
#include routerChoice
struct Layer { layer: u32, sharedSlot: u32, pad0: u32, pad1: u32 }
@group(0) @binding(12) var<uniform> which: Layer;
@group(0) @binding(11) var<storage, read_write> choice: array<u32>; // [layers, MAX_TOKENS, K]
#else
@group(0) @binding(3) var<storage, read> status: array<u32>; // [0] not 0: an expert was missing
#endif
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>; // [tokens, cols], or [tokens, 2 * cols]
@group(0) @binding(5) var<storage, read> norm: array<vec4<f32>>; // [norms, cols]
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [tokens, outStride], or [tokens, RANKS, outStride]
#if CHOOSE
@group(0) @binding(7) var<storage, read_write> mixing: array<vec2<u32>>; // [tokens, RANKS]: slot, weight as bits
#elif RANKS
@group(0) @binding(7) var<storage, read> mixing: array<vec2<u32>>;
#elif BIAS
@group(0) @binding(7) var<storage, read> biases: array<f32>; // [outStride]
#endif

struct Rows { first: u32, last: u32, units: u32, weight: u32, scales: u32, biases: u32 }

fn loadAt(rows: Rows, r: u32, unit: u32) -> UnitLoad {
  let row = min(rows.first + r, rows.last);
  let at = rows.weight + (row * rows.units + unit) * UNIT_LOADS;
  return loadUnit(at, rows.scales, rows.biases, scaleIndex(row, rows.units, unit));
}

#if CHOOSE
// The slot of the workgroup's rank. The first workgroup of a token writes all of its choice.
fn chooseSlot(token: u32, group: vec3<u32>, thread: u32, lane: u32) -> u32 {
#if SHARED > 0
  if (group.y == K) { return which.sharedSlot; }
#endif
  let row = token * LOGITS_STRIDE;
  makeChoice(row, 0u, thread, lane);
  if (group.x + group.y == 0u) {
    for (var rank = thread; rank < K; rank += WG) {
      choice[(which.layer * MAX_TOKENS + token) * K + rank] = chosen[rank];
      mixing[token * RANKS + rank] = vec2<u32>(slotOf(rank), chosenWeight(row, rank));
    }
#if SHARED > 0
    if (thread == 0u) { mixing[token * RANKS + K] = vec2<u32>(which.sharedSlot, sharedWeight(row)); }
#endif
  }
  return slotOf(group.y);
}

// Whatever the table says, no slot is past the last one.
fn slotOf(rank: u32) -> u32 {
  return min(slotTable[which.layer * EXPERTS + chosen[rank]], arrayLength(&halves) / segments.expertWords - 1u);
}
#endif

fn rowsAt(segment: Segment, slot: u32, first: u32, units: u32) -> Rows {
  let words = slot * segments.expertWords;
  return Rows(
    first, segment.rows - 1u, units, (segment.weight + words) / LOAD_WORDS,
    segment.scales + words * 2u, segment.biases + words * 2u);
}

@compute @workgroup_size(WG)
#include mainOfTeam
#if !CHOOSE
  let missed = status[0]; // looked at once the loads are on their way
#endif
#if RANKS
  let tile = group.x;
#else
  let tile = group.y;
#endif
  let segment = segments.list[segmentOf(tile)];
  let units = segments.cols / 32u;
#if RANKS
  let token = group.z;
#if CHOOSE
  var slot = 0u;
  let own = logitQuad(token * LOGITS_STRIDE, thread); // on its way while the input is staged
#else
  let slot = select(mixing[token * RANKS + group.y].x, 0u, missed != 0u); // after a miss it is of another layer, or of none
#endif
  let outRow = token * RANKS + group.y;
#else
  let token = group.x;
  let slot = 0u;
  let outRow = token;
#endif
  let firstRow = (tile - segment.firstTile) * (TEAMS * ROWS);
  let team = thread / TEAM;
  let member = thread % TEAM;
#if CHOOSE
  var rows: Rows; // when the slot is known
  let firstUnit = member;
#else
  let rows = rowsAt(segment, slot, firstRow + team * ROWS, units);
  let firstUnit = member + TEAM;
#endif
  var sums: array<f32, ROWS>;
  var squares = 0.0;
  for (var block = 0u; block < units; block += BLOCK_UNITS) {
    let blockUnits = min(BLOCK_UNITS, units - block);
#if !CHOOSE
    // The first weights are on their way while the input is staged.
    var early: array<UnitLoad, ROWS>;
    for (var r = 0u; r < ROWS; r++) { early[r] = loadAt(rows, r, block + min(member, blockUnits - 1u)); }
#endif
    for (var first = 0u; first < blockUnits * STAGERS; first += WG) {
      let task = min(first + thread, blockUnits * STAGERS - 1u);
      let isIn = first + thread <= task;
      var v: array<vec4<f32>, STAGED>;
      for (var i = 0u; i < STAGED; i++) {
        let column = block * 8u + task * STAGED + i;
#if SWIGLU
        let gate = x[token * units * 16u + column];
        let up = x[token * units * 16u + units * 8u + column];
        v[i] = gluQuad(gate, up);
#else
        v[i] = x[token * units * 8u + column];
#endif
#if NORM
        squares += select(0.0, dot(v[i], v[i]), isIn);
        v[i] *= norm[segment.norm * units * 8u + column];
#endif
      }
      stageUnit(task, isIn, &v, 1.0);
    }
#if CHOOSE
    if (block == 0u) { prepareChoice(token * LOGITS_STRIDE, own, thread); }
    workgroupBarrier();
    if (block == 0u) {
      slot = chooseSlot(token, group, thread, lane);
      rows = rowsAt(segment, slot, firstRow + team * ROWS, units);
    }
#else
    workgroupBarrier();
    if (missed != 0u) { return; }
    if (member < blockUnits) {
      for (var r = 0u; r < ROWS; r++) { sums[r] += unitProduct(early[r], member); }
    }
#endif
    for (var first = firstUnit; first < blockUnits; first += TEAM * DEPTH) {
      var loads: array<UnitLoad, ROWS * DEPTH>;
      for (var i = 0u; i < ROWS * DEPTH; i++) {
        loads[i] = loadAt(rows, i % ROWS, block + min(first + i / ROWS * TEAM, blockUnits - 1u));
      }
      for (var i = 0u; i < ROWS * DEPTH; i++) {
        let unit = first + i / ROWS * TEAM;
        if (unit < blockUnits) { sums[i % ROWS] += unitProduct(loads[i], unit); }
      }
    }
    workgroupBarrier();
  }
  for (var r = 0u; r < ROWS; r++) { teamStore(r, sums[r], thread, lane, subgroupSize); }
#if NORM
  teamStore(ROWS, squares, thread, lane, subgroupSize);
#endif
  workgroupBarrier();
  if (thread < TEAMS * ROWS) {
    let row = firstRow + thread;
    if (row < segment.rows) {
      var value = teamSum(thread / ROWS, thread % ROWS, subgroupSize);
#if NORM
      var total = 0.0;
      for (var i = 0u; i < TEAMS; i++) { total += teamSum(i, ROWS, subgroupSize); }
      value *= inverseSqrt(total / f32(segments.cols) + EPS);
#endif
#if BIAS
#if RANKS
      let biasAt = segment.bias + slot * segments.expertWords * FLOATS_PER_WORD + row;
      value += slotFloat(halves[biasAt / FLOATS_PER_WORD], biasAt);
#else
      value += biases[segment.out + row];
#endif
#endif
      let at = outRow * segments.outStride + segment.out + row;
#if ADD
      y[at] += value;
#else
      y[at] = value;
#endif
    }
  }
}
