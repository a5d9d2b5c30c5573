// Puts the ranges of a split attention together with a head's sink, and applies the gate, where there are such. One
// workgroup per head and token.
#include activations

@group(0) @binding(0) var<storage, read> parts: array<f32>; // [tokens, heads, SPLITS, headDim + 2]
@group(0) @binding(1) var<storage, read_write> out: array<f32>; // [tokens, heads, headDim]
#if GATED
@group(0) @binding(2) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: per head query, gate
#endif
#if SINKS
@group(0) @binding(3) var<storage, read> sinks: array<f32>; // [heads]
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  const stride = HEAD_DIM + 2u;
  let base = (group.y * HEADS + group.x) * SPLITS * stride;
#if SINKS
  let sink = sinks[group.x];
#else
  const sink = -1e30;
#endif
  var largest = sink;
  for (var i = 0u; i < SPLITS; i++) { largest = max(largest, parts[base + i * stride + HEAD_DIM]); }
  for (var d = thread; d < HEAD_DIM; d += WG) {
    var sum = 0.0;
#if SINKS
    var total = exp(sink - largest);
#else
    var total = 0.0;
#endif
    for (var i = 0u; i < SPLITS; i++) {
      let at = base + i * stride;
      let scale = exp(parts[at + HEAD_DIM] - largest);
      total += parts[at + HEAD_DIM + 1u] * scale;
      sum += parts[at + d] * scale;
    }
#if GATED
    let gate = inputs[group.y * IN_STRIDE + group.x * 2u * HEAD_DIM + HEAD_DIM + d];
    out[(group.y * HEADS + group.x) * HEAD_DIM + d] = sum / total * sigmoid(gate);
#else
    out[(group.y * HEADS + group.x) * HEAD_DIM + d] = sum / total;
#endif
  }
}
