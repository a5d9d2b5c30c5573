// Per value head: o * rsqrt(mean(o²) + eps) * weight * silu(z), in place, or with HALVES as half floats for matrix units. One
// workgroup per head and token.
#include reduce
#include activations
#if HALVES
#include halfBits
#endif

@group(0) @binding(0) var<storage, read> weight: array<f32>; // [valueDim]
@group(0) @binding(1) var<storage, read> inputs: array<f32>; // [tokens, IN_STRIDE]: z at Z_AT
@group(0) @binding(2) var<storage, read_write> values: array<f32>; // [tokens, valueHeads, valueDim]
#if HALVES
@group(0) @binding(3) var<storage, read_write> halves: array<vec4<u32>>; // [tokens, valueHeads, valueDim / 8]

var<workgroup> row: array<vec4<f32>, VALUE_DIM / 4u>;
#endif

@compute @workgroup_size(WG)
#include mainOfTeam
  let base = (group.y * VALUE_HEADS + group.x) * VALUE_DIM;
  let z = group.y * IN_STRIDE + Z_AT + group.x * VALUE_DIM;
  var squares = 0.0;
  for (var i = thread; i < VALUE_DIM; i += WG) { squares += values[base + i] * values[base + i]; }
  let scale = inverseSqrt(workgroupSum(squares, thread, lane, subgroupSize) / f32(VALUE_DIM) + EPS);
  for (var i = thread; i < VALUE_DIM; i += WG) {
    let value = values[base + i] * scale * weight[i] * silu(inputs[z + i]);
#if HALVES
    row[i / 4u][i % 4u] = value;
#else
    values[base + i] = value;
#endif
  }
#if HALVES
  workgroupBarrier();
  for (var i = thread; i < VALUE_DIM / 8u; i += WG) { halves[base / 8u + i] = halvesOf(row[2u * i], row[2u * i + 1u]); }
#endif
}
