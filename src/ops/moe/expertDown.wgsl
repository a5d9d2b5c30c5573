// The second half of the MoE block for single tokens: down(activation(gate, up)) of all K experts, weighted, plus a shared
// expert that is not one of the K (SHARED: 1 by its gate, 2 as it is), added to hidden. The K experts' columns are one long input; the router's weight goes into its scale.
// BIAS: of each expert, in its slot. Workgroup (tile, token). Does nothing after a miss.
#include vecWeights
#include dot4
#include vecInput
#include teamSum
#include glu
#if BIAS
#include slotFloat
#endif

struct Shape { rows: u32, cols: u32, weight: u32, scales: u32, biases: u32, slotWords: u32, bias: u32, pad: u32 }
@group(0) @binding(2) var<uniform> shape: Shape;
@group(0) @binding(3) var<storage, read> status: array<u32>;
@group(0) @binding(4) var<storage, read> gateUp: array<vec4<f32>>; // [tokens, K, 2 * cols]
@group(0) @binding(5) var<storage, read> mixing: array<vec2<u32>>; // [tokens, K]: slot, weight as bits
@group(0) @binding(6) var<storage, read_write> hidden: array<f32>; // [tokens, rows]
#if SHARED > 0
@group(0) @binding(7) var<storage, read> sharedRows: array<f32>; // [tokens, rows]
#endif
#if SHARED == 1
@group(0) @binding(8) var<storage, read> logits: array<f32>; // [tokens, GATE_STRIDE]: the shared expert's gate at GATE_AT
#endif

// One unit of row `row`, counted over the columns of all K experts.
fn loadAt(token: u32, row: u32, unit: u32, missed: u32) -> UnitLoad {
  let expertUnits = shape.cols / 32u;
  let column = unit % expertUnits;
  // After a miss the slot is of another layer, or of none.
  let slotWords = select(mixing[token * K + unit / expertUnits].x, 0u, missed != 0u) * shape.slotWords;
  let at = (shape.weight + slotWords) / LOAD_WORDS + (row * expertUnits + column) * UNIT_LOADS;
  let slot = slotWords * 2u;
  return loadUnit(at, shape.scales + slot, shape.biases + slot, scaleIndex(row, expertUnits, column));
}

@compute @workgroup_size(WG)
#include mainOfTeam
  let missed = status[0]; // looked at once the loads are on their way
  let token = group.y;
  let firstRow = group.x * (TEAMS * ROWS);
  let expertUnits = shape.cols / 32u;
  let units = expertUnits * K;
  let team = thread / TEAM;
  let member = thread % TEAM;
  let teamRow = firstRow + team * ROWS;
  var sums: array<f32, ROWS>;
  for (var block = 0u; block < units; block += BLOCK_UNITS) {
    let blockUnits = min(BLOCK_UNITS, units - block);
    var early: array<UnitLoad, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
      early[r] = loadAt(token, min(teamRow + r, shape.rows - 1u), block + min(member, blockUnits - 1u), missed);
    }
    for (var first = 0u; first < blockUnits * STAGERS; first += WG) {
      let task = min(first + thread, blockUnits * STAGERS - 1u);
      let unit = block + task / STAGERS;
      let rank = unit / expertUnits;
      let source = (token * K + rank) * expertUnits * 16u + (unit % expertUnits) * 8u + task % STAGERS * STAGED;
      var v: array<vec4<f32>, STAGED>;
      for (var i = 0u; i < STAGED; i++) {
        let gate = gateUp[source + i];
        let up = gateUp[source + expertUnits * 8u + i];
        v[i] = gluQuad(gate, up);
      }
      stageUnit(task, first + thread <= task, &v, bitcast<f32>(mixing[token * K + rank].y));
    }
    workgroupBarrier();
    if (missed != 0u) { return; }
    if (member < blockUnits) {
      for (var r = 0u; r < ROWS; r++) { sums[r] += unitProduct(early[r], member); }
    }
    for (var first = member + TEAM; first < blockUnits; first += TEAM * DEPTH) {
      var loads: array<UnitLoad, ROWS * DEPTH>;
      for (var i = 0u; i < ROWS * DEPTH; i++) {
        let unit = block + min(first + i / ROWS * TEAM, blockUnits - 1u);
        loads[i] = loadAt(token, min(teamRow + i % ROWS, shape.rows - 1u), unit, missed);
      }
      for (var i = 0u; i < ROWS * DEPTH; i++) {
        let unit = first + i / ROWS * TEAM;
        if (unit < blockUnits) { sums[i % ROWS] += unitProduct(loads[i], unit); }
      }
    }
    workgroupBarrier();
  }
  for (var r = 0u; r < ROWS; r++) { teamStore(r, sums[r], thread, lane, subgroupSize); }
  workgroupBarrier();
  let row = firstRow + thread;
  if (thread < TEAMS * ROWS && row < shape.rows) {
    var value = teamSum(thread / ROWS, thread % ROWS, subgroupSize);
#if BIAS
    for (var rank = 0u; rank < K; rank++) {
      let expert = mixing[token * K + rank];
      let at = shape.bias + expert.x * shape.slotWords * FLOATS_PER_WORD + row;
      value += bitcast<f32>(expert.y) * slotFloat(halves[at / FLOATS_PER_WORD], at);
    }
#endif
#if SHARED == 0
    hidden[token * shape.rows + row] += value;
#elif SHARED == 1
    let gate = sigmoid(logits[token * GATE_STRIDE + GATE_AT]);
    hidden[token * shape.rows + row] += value + gate * sharedRows[token * shape.rows + row];
#else
    hidden[token * shape.rows + row] += value + sharedRows[token * shape.rows + row];
#endif
  }
}
