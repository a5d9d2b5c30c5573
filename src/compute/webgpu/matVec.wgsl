// y = W x for single tokens: the decode kernel. A team of TEAM threads computes ROWS rows, WG / TEAM teams share the
// input in workgroup memory. NORM: x is hidden * weight, and 1 / rms(hidden), being one number for all columns, is
// applied to the sums. SWIGLU: x is the activation of a row [gate | up]. ADD: y += instead of y =. EXPERTS: workgroup
// (tile, rank, token) computes the expert that the token's router put at this rank. BIAS: by column of the output row, or of the
// expert, in its slot. Does nothing after a miss.
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
@group(0) @binding(3) var<storage, read> status: array<u32>; // [0] not 0: an expert was missing
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>; // [tokens, cols], or [tokens, 2 * cols]
@group(0) @binding(5) var<storage, read> norm: array<vec4<f32>>; // [norms, cols]
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [tokens, outStride], or [tokens, K, outStride]
#if EXPERTS
@group(0) @binding(7) var<storage, read> mixing: array<vec2<u32>>; // [tokens, K]: slot, weight as bits
#elif BIAS
@group(0) @binding(7) var<storage, read> biases: array<f32>; // [outStride]
#endif

struct Rows { first: u32, last: u32, units: u32, weight: u32, scales: u32, biases: u32 }

fn loadAt(rows: Rows, r: u32, unit: u32) -> UnitLoad {
  let row = min(rows.first + r, rows.last);
  let at = rows.weight + (row * rows.units + unit) * UNIT_LOADS;
  return loadUnit(at, rows.scales, rows.biases, scaleIndex(row, rows.units, unit));
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
#if SUBGROUPS
  @builtin(subgroup_invocation_id) lane: u32,
  @builtin(subgroup_size) subgroupSize: u32,
#endif
) {
#if !SUBGROUPS
  let lane = 0u;
  let subgroupSize = 1u;
#endif
  let missed = status[0]; // looked at once the loads are on their way
  let segment = segments.list[segmentOf(group.x)];
  let units = segments.cols / 32u;
#if EXPERTS
  let token = group.z;
  let slot = select(mixing[token * K + group.y].x, 0u, missed != 0u); // after a miss it is of another layer, or of none
  let outRow = token * K + group.y;
#else
  let token = group.y;
  let slot = 0u;
  let outRow = token;
#endif
  let firstRow = (group.x - segment.firstTile) * (TEAMS * ROWS);
  let weightBase = (segment.weight + slot * segments.expertWords) / LOAD_WORDS;
  let scaleBase = segment.scales + slot * segments.expertWords * 2u;
  let biasBase = segment.biases + slot * segments.expertWords * 2u;
  let team = thread / TEAM;
  let member = thread % TEAM;
  let rows = Rows(firstRow + team * ROWS, segment.rows - 1u, units, weightBase, scaleBase, biasBase);
  var sums: array<f32, ROWS>;
  var squares = 0.0;
  for (var block = 0u; block < units; block += BLOCK_UNITS) {
    let blockUnits = min(BLOCK_UNITS, units - block);
    // The first weights are on their way while the input is staged.
    var early: array<UnitLoad, ROWS>;
    for (var r = 0u; r < ROWS; r++) { early[r] = loadAt(rows, r, block + min(member, blockUnits - 1u)); }
    for (var unit = thread; unit < blockUnits; unit += WG) {
      var v: array<vec4<f32>, 8>;
      for (var i = 0u; i < 8u; i++) {
        let column = (block + unit) * 8u + i;
#if SWIGLU
        let gate = x[token * units * 16u + column];
        let up = x[token * units * 16u + units * 8u + column];
        v[i] = gluQuad(gate, up);
#else
        v[i] = x[token * units * 8u + column];
#endif
#if NORM
        squares += dot(v[i], v[i]);
        v[i] *= norm[segment.norm * units * 8u + column];
#endif
      }
      stageUnit(unit, &v, 1.0);
    }
    workgroupBarrier();
    if (missed != 0u) { return; }
    if (member < blockUnits) {
      for (var r = 0u; r < ROWS; r++) { sums[r] += unitProduct(early[r], member); }
    }
    for (var unit = member + TEAM; unit < blockUnits; unit += TEAM) {
      var loads: array<UnitLoad, ROWS>;
      for (var r = 0u; r < ROWS; r++) { loads[r] = loadAt(rows, r, block + unit); }
      for (var r = 0u; r < ROWS; r++) { sums[r] += unitProduct(loads[r], unit); }
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
#if EXPERTS
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
