// The MoE block's output: the chosen experts' rows by their weights, in order of rank, plus the shared expert
// (SHARED: 1 by its gate, 2 as it is). A rank without weight was computed elsewhere: its row was never written.
#if SHARED == 1
#include activations
#endif

struct Shape { width: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> expertRows: array<f32>; // [tokens, K, width], or in the order of groupTokens
@group(0) @binding(2) var<storage, read> mixing: array<vec2<u32>>; // [tokens, K]: slot, weight as bits
@group(0) @binding(3) var<storage, read_write> out: array<f32>; // [tokens, width]
#if SHARED > 0
@group(0) @binding(4) var<storage, read> sharedRows: array<f32>; // [tokens, width]
#endif
#if SHARED == 1
@group(0) @binding(5) var<storage, read> logits: array<f32>; // [tokens, GATE_STRIDE]: shared gate at GATE_AT
#endif

#if PLACES_AT
@group(0) @binding(6) var<storage, read> groups: array<u32>; // the row of each pair at PLACES_AT
#endif

fn rowOf(pair: u32) -> u32 {
#if PLACES_AT
  return groups[PLACES_AT + pair];
#else
  return pair;
#endif
}

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= shape.width) { return; }
  let token = id.y;
  var sum = 0.0;
  for (var rank = 0u; rank < K; rank++) {
    let weight = bitcast<f32>(mixing[token * K + rank].y);
    if (weight != 0.0) { sum += weight * expertRows[rowOf(token * K + rank) * shape.width + id.x]; }
  }
#if SHARED == 1
  let gate = sigmoid(logits[token * GATE_STRIDE + GATE_AT]);
  sum += gate * sharedRows[token * shape.width + id.x];
#elif SHARED == 2
  sum += sharedRows[token * shape.width + id.x];
#endif
  out[token * shape.width + id.x] = sum;
}
