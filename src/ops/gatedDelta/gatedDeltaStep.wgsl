// One token of a linear-attention layer between its projections: convolution, SiLU, norms, the delta rule, the gated norm.
// One workgroup per value head and token, one thread per row of the head's state. The state lies as in gatedDelta. RUNS: one workgroup
// per value head and run, whose tokens come one after the other, each with the state after it in a slot of its own.
#include reduce
#include activations
#include step
const WG = VALUE_DIM;
const KEY_QUADS = KEY_DIM / 4u;
const KEY_WIDTH = KEY_HEADS * KEY_DIM;
const CHANNELS = 2u * KEY_WIDTH + VALUE_HEADS * VALUE_DIM;

@group(0) @binding(0) var<storage, read> constants: array<vec4<f32>>; // taps [channels]; [heads] -exp(A_log), dt_bias; [valueDim] norm
@group(0) @binding(1) var<storage, read> tokens: array<Token>;
@group(0) @binding(2) var<storage, read> status: array<u32>;
@group(0) @binding(3) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: q | k | v, z, b, a
@group(0) @binding(4) var<storage, read_write> states: array<vec4<f32>>; // [slots, STATE_QUADS]: conv [channels], recurrent
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [tokens, valueHeads * valueDim]
#if RUNS
@group(0) @binding(6) var<storage, read> runs: array<Run>;
#endif
const GATES_AT = CHANNELS;
const NORM_AT = GATES_AT + VALUE_HEADS;

var<workgroup> q: array<vec4<f32>, KEY_QUADS>;
var<workgroup> k: array<vec4<f32>, KEY_QUADS>;

// A token, and the states before its run and after itself.
struct Place { token: u32, index: u32, stateIn: u32, stateOut: u32 }

#if RUNS
// Other workgroups write the states of earlier tokens: their inputs are taken instead.
fn inputBefore(place: Place, back: u32, channel: u32) -> f32 {
  if (back > place.index) { return states[place.stateIn * STATE_QUADS + channel][3u + place.index - back]; }
  return inputs[(place.token - back) * IN_STRIDE + channel];
}
#endif

// Convolves one channel and shifts its window into the new state.
fn convolve(place: Place, channel: u32, isOwner: bool) -> f32 {
#if RUNS
  let window = vec4<f32>(inputBefore(place, 3u, channel), inputBefore(place, 2u, channel), inputBefore(place, 1u, channel),
    inputs[place.token * IN_STRIDE + channel]);
#else
  let window = vec4<f32>(states[place.stateIn * STATE_QUADS + channel].xyz, inputs[place.token * IN_STRIDE + channel]);
#endif
  if (isOwner) { states[place.stateOut * STATE_QUADS + channel] = vec4<f32>(window.yzw, 0.0); }
  return silu(dot(window, constants[channel]));
}

@compute @workgroup_size(VALUE_DIM)
#include mainOfTeam
  if (status[0] != 0u) { return; }
  const share = VALUE_HEADS / KEY_HEADS;
  let head = group.x;
  let keyHead = head / share;
  let isOwner = head % share == 0u;
#if RUNS
  let first = runs[group.y].first;
  let count = runs[group.y].count;
#else
  let first = group.y;
  const count = 1u;
#endif
  let stateIn = tokens[first].stateIn;
  // The state is on its way while the convolution is computed.
  var state: array<vec4<f32>, KEY_QUADS>;
  let recurrent = CHANNELS + head * KEY_QUADS * VALUE_DIM + thread;
  for (var i = 0u; i < KEY_QUADS; i++) { state[i] = states[stateIn * STATE_QUADS + recurrent + i * VALUE_DIM]; }
  for (var index = 0u; index < count; index++) {
    let token = first + index;
    let place = Place(token, index, stateIn, tokens[token].stateOut);
    var qSquares = 0.0;
    var kSquares = 0.0;
    // A thread convolves the four channels of a quad: half of the first threads do queries, the other half keys.
    for (var i = thread; i < 2u * KEY_QUADS; i += WG) {
      let quad = i % KEY_QUADS;
      let isKey = i >= KEY_QUADS;
      let channel = select(0u, KEY_WIDTH, isKey) + keyHead * KEY_DIM + 4u * quad;
      let four = vec4<f32>(
        convolve(place, channel, isOwner), convolve(place, channel + 1u, isOwner),
        convolve(place, channel + 2u, isOwner), convolve(place, channel + 3u, isOwner));
      if (isKey) {
        k[quad] = four;
        kSquares += dot(four, four);
      } else {
        q[quad] = four;
        qSquares += dot(four, four);
      }
    }
    let value = convolve(place, 2u * KEY_WIDTH + head * VALUE_DIM + thread, true);
    let qScale = inverseSqrt(workgroupSum(qSquares, thread, lane, subgroupSize) + 1e-6) * inverseSqrt(f32(KEY_DIM));
    let kScale = inverseSqrt(workgroupSum(kSquares, thread, lane, subgroupSize) + 1e-6);
    let row = token * IN_STRIDE;
    let beta = sigmoid(inputs[row + B_AT + head]);
    let gate = constants[GATES_AT + head];
    let decay = exp(gate.x * softplus(inputs[row + A_AT + head] + gate.y));
    var memory = vec4<f32>();
    for (var i = 0u; i < KEY_QUADS; i++) {
      memory += state[i] * k[i];
    }
    let delta = (value - decay * kScale * (memory.x + memory.y + memory.z + memory.w)) * beta * kScale;
    var sum = vec4<f32>();
    let to = place.stateOut * STATE_QUADS + recurrent;
    for (var i = 0u; i < KEY_QUADS; i++) {
      let s = decay * state[i] + delta * k[i];
      state[i] = s;
      sum += s * q[i];
      states[to + i * VALUE_DIM] = s;
    }
    let o = (sum.x + sum.y + sum.z + sum.w) * qScale;
    let scale = inverseSqrt(workgroupSum(o * o, thread, lane, subgroupSize) / f32(VALUE_DIM) + EPS);
    let z = inputs[row + Z_AT + head * VALUE_DIM + thread];
    out[token * VALUE_HEADS * VALUE_DIM + head * VALUE_DIM + thread] = o * scale * constants[NORM_AT + thread].x * silu(z);
  }
}
