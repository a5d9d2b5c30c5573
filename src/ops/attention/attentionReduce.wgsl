// Puts the ranges of a split attention together with a head's sink, and applies the gate, where there are such. One
// workgroup per head and token: SPAN threads take a range together, GROUPS of them different ranges.
#include activations
const QUADS = HEAD_DIM / 4u;
const SPAN = min(QUADS, WG);
const GROUPS = WG / SPAN;
const LOADS = 4u; // of a thread that are under way at once

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>; // [tokens, heads, SPLITS]: headDim values; largest score, sum, ranges
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>; // [tokens, heads, headDim]
#if GATED
@group(0) @binding(2) var<storage, read> inputs: array<vec4<f32>>; // [tokens, IN_STRIDE]: per head query, gate
#endif
#if SINKS
@group(0) @binding(3) var<storage, read> sinks: array<f32>; // [heads]
#endif

var<workgroup> ranges: array<vec2<f32>, SPLITS>; // largest score, sum
var<workgroup> scales: array<f32, SPLITS>;
var<workgroup> groupSums: array<vec4<f32>, GROUPS * SPAN>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  const stride = QUADS + 1u;
  let base = (group.y * HEADS + group.x) * SPLITS * stride;
  let used = min(u32(parts[base + QUADS].z), SPLITS);
  for (var i = thread; i < used; i += WG) { ranges[i] = parts[base + i * stride + QUADS].xy; }
#if SINKS
  let sink = sinks[group.x];
#else
  const sink = -1e30;
#endif
  workgroupBarrier();
  var largest = sink;
  for (var i = 0u; i < used; i++) { largest = max(largest, ranges[i].x); }
  for (var i = thread; i < used; i += WG) { scales[i] = exp(ranges[i].x - largest); }
  workgroupBarrier();
#if SINKS
  var total = exp(sink - largest);
#else
  var total = 0.0;
#endif
  for (var i = 0u; i < used; i++) { total += ranges[i].y * scales[i]; }
  for (var first = 0u; first < QUADS; first += SPAN) {
    let quad = first + thread % SPAN;
    var sum = vec4<f32>();
    for (var i = thread / SPAN; i < used; i += LOADS * GROUPS) {
      var loaded: array<vec4<f32>, LOADS>;
      for (var n = 0u; n < LOADS; n++) {
        loaded[n] = parts[base + min(i + n * GROUPS, used - 1u) * stride + min(quad, QUADS - 1u)];
      }
      for (var n = 0u; n < LOADS; n++) {
        if (i + n * GROUPS < used) { sum += loaded[n] * scales[i + n * GROUPS]; }
      }
    }
    if (thread < GROUPS * SPAN) { groupSums[thread] = sum; }
    workgroupBarrier();
    if (thread < SPAN && quad < QUADS) {
      for (var n = 1u; n < GROUPS; n++) { sum += groupSums[n * SPAN + thread]; }
      var value = sum / total;
#if GATED
      let gate = inputs[(group.y * IN_STRIDE + group.x * 2u * HEAD_DIM + HEAD_DIM) / 4u + quad];
      value *= vec4<f32>(sigmoid(gate.x), sigmoid(gate.y), sigmoid(gate.z), sigmoid(gate.w));
#endif
      out[(group.y * HEADS + group.x) * QUADS + quad] = value;
    }
    workgroupBarrier();
  }
}
