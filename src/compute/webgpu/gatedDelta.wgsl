// The gated delta rule over a run of tokens, one at a time in a loop. A workgroup has some rows of a value head's state, PARTS
// neighbouring threads share a row and keep it in registers; rows do not know of each other. State layout:
// [head][keyDim / 4][valueDim] of vec4, so that threads beside each other read beside each other.
#include activations
#include step
const WG = VALUE_DIM;
const ROWS = VALUE_DIM / PARTS; // per workgroup
const KEY_QUADS = KEY_DIM / 4u;
const OWN = KEY_QUADS / PARTS; // quads of a row that a thread has
const KEY_WIDTH = KEY_HEADS * KEY_DIM;
const CHANNELS = 2u * KEY_WIDTH + VALUE_HEADS * VALUE_DIM;

@group(0) @binding(0) var<storage, read> gates: array<vec2<f32>>; // [valueHeads] -exp(A_log), dt_bias
@group(0) @binding(1) var<storage, read> runs: array<Run>;
@group(0) @binding(2) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: b at B_AT, a at A_AT
@group(0) @binding(3) var<storage, read> convolved: array<vec4<f32>>; // [tokens, channels] q | k | v
@group(0) @binding(4) var<storage, read_write> states: array<vec4<f32>>; // [slots, STATE_QUADS]: recurrent after [channels]
@group(0) @binding(5) var<storage, read_write> out: array<f32>; // [tokens, valueHeads, valueDim]

const QK = 2u * KEY_QUADS; // quads of a token's q | k
const LOADS = (CHUNK * QK + WG - 1u) / WG; // of a chunk that a thread brings
var<workgroup> qk: array<vec4<f32>, 2u * CHUNK * QK>; // two chunks of tokens: one in use, one being brought
var<workgroup> gating: array<vec2<f32>, 2u * CHUNK>; // decay, beta

// What a thread needs of a chunk of tokens.
struct Chunk {
  qk: array<vec4<f32>, LOADS>,
  value: array<f32, CHUNK>,
  gating: vec2<f32>, // a and b of one token
}

fn bring(first: u32, last: u32, head: u32, row: u32, thread: u32) -> Chunk {
  let keyHead = head / (VALUE_HEADS / KEY_HEADS);
  var chunk: Chunk;
  for (var n = 0u; n < LOADS; n++) {
    let i = min(thread + n * WG, CHUNK * QK - 1u);
    let quad = i % QK;
    let at = select(keyHead * KEY_QUADS + quad, (KEY_WIDTH / 4u) + keyHead * KEY_QUADS + quad - KEY_QUADS, quad >= KEY_QUADS);
    chunk.qk[n] = convolved[min(first + i / QK, last) * (CHANNELS / 4u) + at];
  }
  let channel = 2u * KEY_WIDTH + head * VALUE_DIM + row;
  for (var t = 0u; t < CHUNK; t++) {
    let token = min(first + t, last);
    chunk.value[t] = convolved[token * (CHANNELS / 4u) + channel / 4u][channel % 4u];
  }
  let at = min(first + min(thread, CHUNK - 1u), last) * IN_STRIDE + head;
  chunk.gating = vec2<f32>(inputs[at + A_AT], inputs[at + B_AT]);
  return chunk;
}

// Of the threads that share a row.
fn rowSum(four: vec4<f32>) -> f32 {
  var sum = four.x + four.y + four.z + four.w;
#if PARTS > 1
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
#endif
#if PARTS > 4
  sum += subgroupShuffleXor(sum, 4u);
#endif
#if PARTS > 8
  sum += subgroupShuffleXor(sum, 8u);
#endif
  return sum;
}

@compute @workgroup_size(VALUE_DIM)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group.x / PARTS;
  let part = thread % PARTS;
  let row = group.x % PARTS * ROWS + thread / PARTS;
  let run = runs[group.y];
  let last = run.first + run.count - 1u;
  let gate = gates[head];
  var state: array<vec4<f32>, OWN>;
  let recurrent = CHANNELS + (head * KEY_QUADS + part) * VALUE_DIM + row;
  for (var i = 0u; i < OWN; i++) { state[i] = states[run.stateIn * STATE_QUADS + recurrent + i * PARTS * VALUE_DIM]; }
  // What tokens need is loaded while the tokens before are computed: memory is far, and the tokens wait for each other.
  var next = bring(run.first, last, head, row, thread);
  for (var first = 0u; first < run.count; first += CHUNK) {
    let buffer = first / CHUNK % 2u * CHUNK * QK;
    for (var n = 0u; n < LOADS; n++) {
      let i = thread + n * WG;
      if (i < CHUNK * QK) { qk[buffer + i] = next.qk[n]; }
    }
    let gatings = first / CHUNK % 2u * CHUNK;
    if (thread < CHUNK) {
      let ab = next.gating;
      gating[gatings + thread] = vec2<f32>(exp(gate.x * softplus(ab.x + gate.y)), sigmoid(ab.y));
    }
    let now = next;
    workgroupBarrier();
    next = bring(run.first + min(first + CHUNK, run.count - 1u), last, head, row, thread);
    for (var t = 0u; t < CHUNK; t++) {
      if (first + t < run.count) {
        let q = buffer + t * QK + part;
        let k = q + KEY_QUADS;
        let decay = gating[gatings + t].x;
        let beta = gating[gatings + t].y;
        var keys: array<vec4<f32>, OWN>;
        var memory = vec4<f32>();
        for (var i = 0u; i < OWN; i++) {
          keys[i] = qk[k + i * PARTS];
          memory += state[i] * keys[i];
        }
        let delta = (now.value[t] - decay * rowSum(memory)) * beta;
        var sum = vec4<f32>();
        for (var i = 0u; i < OWN; i++) {
          state[i] = decay * state[i] + delta * keys[i];
          sum += state[i] * qk[q + i * PARTS];
        }
        let value = rowSum(sum);
        if (part == 0u) { out[((run.first + first + t) * VALUE_HEADS + head) * VALUE_DIM + row] = value; }
      }
    }
  }
  for (var i = 0u; i < OWN; i++) { states[run.stateOut * STATE_QUADS + recurrent + i * PARTS * VALUE_DIM] = state[i]; }
}
