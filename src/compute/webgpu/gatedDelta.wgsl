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
@group(0) @binding(3) var<storage, read> convolved: array<vec4<f32>>; // [tokens, channels] q | k | v
@group(0) @binding(4) var<storage, read_write> states: array<vec4<f32>>; // [slots, STATE_QUADS]: recurrent after [channels]
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [tokens, valueHeads, valueDim]

const LOADS = (2u * KEY_QUADS + VALUE_DIM - 1u) / VALUE_DIM; // quads of q and k that a thread brings per token
var<workgroup> qk: array<vec4<f32>, 4u * KEY_QUADS>; // two tokens' q | k: one in use, one being brought

fn bring(token: u32, keyHead: u32, thread: u32) -> array<vec4<f32>, LOADS> {
  var values: array<vec4<f32>, LOADS>;
  for (var n = 0u; n < LOADS; n++) {
    let i = min(thread + n * VALUE_DIM, 2u * KEY_QUADS - 1u);
    let at = select(keyHead * KEY_QUADS + i, (KEY_WIDTH / 4u) + keyHead * KEY_QUADS + i - KEY_QUADS, i >= KEY_QUADS);
    values[n] = convolved[token * (CHANNELS / 4u) + at];
  }
  return values;
}

fn valueOf(token: u32, channel: u32) -> f32 { return convolved[token * (CHANNELS / 4u) + channel / 4u][channel % 4u]; }

@compute @workgroup_size(VALUE_DIM)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group.x;
  let run = runs[group.y];
  let keyHead = head / (VALUE_HEADS / KEY_HEADS);
  let gate = gates[head];
  var state: array<vec4<f32>, KEY_QUADS>;
  let source = run.stateIn * STATE_QUADS + CHANNELS + head * KEY_QUADS * VALUE_DIM + thread;
  for (var i = 0u; i < KEY_QUADS; i++) { state[i] = states[source + i * VALUE_DIM]; }
  // What a token needs is loaded while the token before is computed: memory is far, and the tokens wait for each other.
  let valueAt = 2u * KEY_WIDTH + head * VALUE_DIM + thread;
  var nextQk = bring(run.first, keyHead, thread);
  var nextValue = valueOf(run.first, valueAt);
  var nextBeta = inputs[run.first * IN_STRIDE + B_AT + head];
  var nextDecay = inputs[run.first * IN_STRIDE + A_AT + head];
  for (var index = 0u; index < run.count; index++) {
    let token = run.first + index;
    let base = (index & 1u) * 2u * KEY_QUADS;
    for (var n = 0u; n < LOADS; n++) {
      let i = thread + n * VALUE_DIM;
      if (i < 2u * KEY_QUADS) { qk[base + i] = nextQk[n]; }
    }
    let value = nextValue;
    let beta = sigmoid(nextBeta);
    let decay = exp(gate.x * softplus(nextDecay + gate.y));
    workgroupBarrier();
    let following = min(token + 1u, run.first + run.count - 1u);
    nextQk = bring(following, keyHead, thread);
    nextValue = valueOf(following, valueAt);
    nextBeta = inputs[following * IN_STRIDE + B_AT + head];
    nextDecay = inputs[following * IN_STRIDE + A_AT + head];
    var memory = vec4<f32>();
    for (var i = 0u; i < KEY_QUADS; i++) { memory += state[i] * qk[base + KEY_QUADS + i]; }
    let delta = (value - decay * (memory.x + memory.y + memory.z + memory.w)) * beta;
    var sum = vec4<f32>();
    for (var i = 0u; i < KEY_QUADS; i++) {
      state[i] = decay * state[i] + delta * qk[base + KEY_QUADS + i];
      sum += state[i] * qk[base + i];
    }
    out[(token * VALUE_HEADS + head) * VALUE_DIM + thread] = sum.x + sum.y + sum.z + sum.w;
  }
  let to = run.stateOut * STATE_QUADS + CHANNELS + head * KEY_QUADS * VALUE_DIM + thread;
  for (var i = 0u; i < KEY_QUADS; i++) { states[to + i * VALUE_DIM] = state[i]; }
}
