// The gated delta rule over a run of tokens, one at a time in a loop. One workgroup per value head and run, one thread
// per row of the head's state, which it keeps in registers. State layout: [head][keyDim / 4][valueDim] of vec4, so that
// threads beside each other read beside each other.
#include activations
#include step
const KEY_QUADS = KEY_DIM / 4u;
const KEY_WIDTH = KEY_HEADS * KEY_DIM;
const CHANNELS = 2u * KEY_WIDTH + VALUE_HEADS * VALUE_DIM;

@group(0) @binding(0) var<storage, read> gates: array<vec2<f32>>; // [valueHeads] -exp(A_log), dt_bias
@group(0) @binding(1) var<storage, read> runs: array<Run>;
@group(0) @binding(2) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: b at B_AT, a at A_AT
@group(0) @binding(3) var<storage, read> convolved: array<f32>; // [tokens, channels] q | k | v
@group(0) @binding(4) var<storage, read_write> states: array<vec4<f32>>; // [slots, STATE_QUADS]: recurrent after [channels]
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [tokens, valueHeads, valueDim]

var<workgroup> q: array<vec4<f32>, KEY_QUADS>;
var<workgroup> k: array<vec4<f32>, KEY_QUADS>;

fn quadAt(at: u32) -> vec4<f32> {
  return vec4<f32>(convolved[at], convolved[at + 1u], convolved[at + 2u], convolved[at + 3u]);
}

@compute @workgroup_size(VALUE_DIM)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group.x;
  let run = runs[group.y];
  let keyHead = head / (VALUE_HEADS / KEY_HEADS);
  let gate = gates[head];
  var state: array<vec4<f32>, KEY_QUADS>;
  let source = run.stateIn * STATE_QUADS + CHANNELS + head * KEY_QUADS * VALUE_DIM + thread;
  for (var i = 0u; i < KEY_QUADS; i++) { state[i] = states[source + i * VALUE_DIM]; }
  for (var index = 0u; index < run.count; index++) {
    let token = run.first + index;
    let keys = token * CHANNELS + keyHead * KEY_DIM;
    for (var i = thread; i < KEY_QUADS; i += VALUE_DIM) {
      q[i] = quadAt(keys + i * 4u);
      k[i] = quadAt(keys + KEY_WIDTH + i * 4u);
    }
    let beta = sigmoid(inputs[token * IN_STRIDE + B_AT + head]);
    let decay = exp(gate.x * softplus(inputs[token * IN_STRIDE + A_AT + head] + gate.y));
    let value = convolved[token * CHANNELS + 2u * KEY_WIDTH + head * VALUE_DIM + thread];
    workgroupBarrier();
    var memory = vec4<f32>();
    for (var i = 0u; i < KEY_QUADS; i++) {
      state[i] *= decay;
      memory += state[i] * k[i];
    }
    let delta = (value - (memory.x + memory.y + memory.z + memory.w)) * beta;
    var sum = vec4<f32>();
    for (var i = 0u; i < KEY_QUADS; i++) {
      state[i] += delta * k[i];
      sum += state[i] * q[i];
    }
    out[(token * VALUE_HEADS + head) * VALUE_DIM + thread] = sum.x + sum.y + sum.z + sum.w;
    workgroupBarrier();
  }
  let to = run.stateOut * STATE_QUADS + CHANNELS + head * KEY_QUADS * VALUE_DIM + thread;
  for (var i = 0u; i < KEY_QUADS; i++) { states[to + i * VALUE_DIM] = state[i]; }
}
