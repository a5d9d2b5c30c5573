// Per value head: o * rsqrt(mean(o²) + eps) * weight * silu(z), in place. One workgroup per head and token.
#include reduce
#include activations

@group(0) @binding(0) var<storage, read> weight: array<f32>; // [valueDim]
@group(0) @binding(1) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: z at Z_AT
@group(0) @binding(2) var<storage, read_write> values: array<f32>; // [tokens, valueHeads, valueDim]

@compute @workgroup_size(WG)
#include mainOfTeam
  let base = (group.y * VALUE_HEADS + group.x) * VALUE_DIM;
  let z = group.y * IN_STRIDE + Z_AT + group.x * VALUE_DIM;
  var squares = 0.0;
  for (var i = thread; i < VALUE_DIM; i += WG) { squares += values[base + i] * values[base + i]; }
  let scale = inverseSqrt(workgroupSum(squares, thread, lane, subgroupSize) / f32(VALUE_DIM) + EPS);
  for (var i = thread; i < VALUE_DIM; i += WG) { values[base + i] = values[base + i] * scale * weight[i] * silu(inputs[z + i]); }
}
