// The gated delta rule over a run of tokens, one at a time in a loop. A workgroup has some rows of a value head's state, PARTS
// neighbouring threads share EACH rows and keep them in registers; rows do not know of each other. State layout:
// [head][keyDim / 4][valueDim] of vec4, so that threads beside each other read beside each other.
#include activations
#include step
const WG = VALUE_DIM;
const TEAMS = VALUE_DIM / PARTS; // of threads that share rows, per workgroup
const GROUPS = PARTS / EACH; // workgroups of a head
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
  value: array<f32, CHUNK * EACH>,
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
  for (var i = 0u; i < CHUNK * EACH; i++) {
    let channel = 2u * KEY_WIDTH + head * VALUE_DIM + row + i % EACH * TEAMS;
    chunk.value[i] = convolved[min(first + i / EACH, last) * (CHANNELS / 4u) + channel / 4u][channel % 4u];
  }
  let at = min(first + min(thread, CHUNK - 1u), last) * IN_STRIDE + head;
  chunk.gating = vec2<f32>(inputs[at + A_AT], inputs[at + B_AT]);
  return chunk;
}

// Two sums of the threads that share a row, side by side.
fn rowSums(a: vec4<f32>, b: vec4<f32>) -> vec2<f32> {
  var sums = vec2<f32>(a.x + a.y + a.z + a.w, b.x + b.y + b.z + b.w);
#if PARTS > 1
  sums += subgroupShuffleXor(sums, 1u);
  sums += subgroupShuffleXor(sums, 2u);
#endif
#if PARTS > 4
  sums += subgroupShuffleXor(sums, 4u);
#endif
#if PARTS > 8
  sums += subgroupShuffleXor(sums, 8u);
#endif
  return sums;
}

@compute @workgroup_size(VALUE_DIM)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let head = group.x / GROUPS;
  let part = thread % PARTS;
  let row = group.x % GROUPS * EACH * TEAMS + thread / PARTS; // the first; the others TEAMS apart
  let run = runs[group.y];
  let last = run.first + run.count - 1u;
  let gate = gates[head];
  let recurrent = CHANNELS + (head * KEY_QUADS + part) * VALUE_DIM + row;
#for j EACH
  var state_$(j): array<vec4<f32>, OWN>;
  for (var i = 0u; i < OWN; i++) { state_$(j)[i] = states[run.stateIn * STATE_QUADS + recurrent + i * PARTS * VALUE_DIM + $(j)u * TEAMS]; }
  var output_$(j) = vec4<f32>(); // of the token before: it is added up with what the next one finds in the state
#endfor
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
      let isPast = first + thread >= run.count; // it leaves the state as it is
      gating[gatings + thread] = select(vec2<f32>(exp(gate.x * softplus(ab.x + gate.y)), sigmoid(ab.y)), vec2<f32>(1.0, 0.0), isPast);
    }
    let now = next;
    workgroupBarrier();
    next = bring(run.first + min(first + CHUNK, run.count - 1u), last, head, row, thread);
    // Written out, with each sum as it is meant: a token has the same bits wherever in a chunk it is.
#for t CHUNK
    {
      let q = buffer + $(t)u * QK + part;
      let decay = gating[gatings + $(t)u].x;
      let beta = gating[gatings + $(t)u].y;
      var keys: array<vec4<f32>, OWN>;
      for (var i = 0u; i < OWN; i++) { keys[i] = qk[q + KEY_QUADS + i * PARTS]; }
#for j EACH
      var memory_$(j) = vec4<f32>();
      for (var i = 0u; i < OWN; i++) { memory_$(j) = fma(state_$(j)[i], keys[i], memory_$(j)); }
      let sums_$(j) = rowSums(memory_$(j), output_$(j));
      let delta_$(j) = vec4<f32>(fma(-decay, sums_$(j).x, now.value[$(t)u * EACH + $(j)u]) * beta);
      output_$(j) = vec4<f32>();
#endfor
      let before = first + $(t)u;
      if (part == 0u && before > 0u && before <= run.count) {
        let at = ((run.first + before - 1u) * VALUE_HEADS + head) * VALUE_DIM + row;
#for j EACH
        out[at + $(j)u * TEAMS] = sums_$(j).y;
#endfor
      }
      for (var i = 0u; i < OWN; i++) {
        let query = qk[q + i * PARTS];
#for j EACH
        state_$(j)[i] = fma(vec4<f32>(decay), state_$(j)[i], delta_$(j) * keys[i]);
        output_$(j) = fma(state_$(j)[i], query, output_$(j));
#endfor
      }
    }
#endfor
  }
#for j EACH
  let value_$(j) = rowSums(output_$(j), output_$(j)).x;
  if (part == 0u && run.count % CHUNK == 0u) { out[(last * VALUE_HEADS + head) * VALUE_DIM + row + $(j)u * TEAMS] = value_$(j); }
  for (var i = 0u; i < OWN; i++) { states[run.stateOut * STATE_QUADS + recurrent + i * PARTS * VALUE_DIM + $(j)u * TEAMS] = state_$(j)[i]; }
#endfor
}
