// Puts the ranges of a split attention together and applies the gate. One workgroup per head and token.
#include activations

@group(0) @binding(0) var<storage, read> parts: array<f32>; // [tokens, heads, SPLITS, headDim + 2]
@group(0) @binding(1) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: per head query, gate
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [tokens, heads, headDim]

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  const stride = HEAD_DIM + 2u;
  let base = (group.y * HEADS + group.x) * SPLITS * stride;
  var largest = -1e30;
  for (var i = 0u; i < SPLITS; i++) { largest = max(largest, parts[base + i * stride + HEAD_DIM]); }
  for (var d = thread; d < HEAD_DIM; d += 64u) {
    var sum = 0.0;
    var total = 0.0;
    for (var i = 0u; i < SPLITS; i++) {
      let at = base + i * stride;
      let scale = exp(parts[at + HEAD_DIM] - largest);
      total += parts[at + HEAD_DIM + 1u] * scale;
      sum += parts[at + d] * scale;
    }
    let gate = inputs[group.y * IN_STRIDE + group.x * 2u * HEAD_DIM + HEAD_DIM + d];
    out[(group.y * HEADS + group.x) * HEAD_DIM + d] = sum / total * sigmoid(gate);
  }
}
