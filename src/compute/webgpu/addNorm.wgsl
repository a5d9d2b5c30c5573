// hidden += delta (ADD), then out = rms(hidden) * weight. One workgroup per token.
#include reduce

struct Shape { width: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [width]
@group(0) @binding(2) var<storage, read> delta: array<f32>; // [tokens, width]
@group(0) @binding(3) var<storage, read_write> hidden: array<f32>; // [tokens, width]
@group(0) @binding(4) var<storage, read_write> out: array<f32>; // [tokens, width]

@compute @workgroup_size(WG)
#include mainOfTeam
  let base = group.x * shape.width;
  var squares = 0.0;
  for (var i = thread; i < shape.width; i += WG) {
#if ADD
    let value = hidden[base + i] + delta[base + i];
    hidden[base + i] = value;
#else
    let value = hidden[base + i];
#endif
    squares += value * value;
  }
  let scale = inverseSqrt(workgroupSum(squares, thread, lane, subgroupSize) / f32(shape.width) + EPS);
  for (var i = thread; i < shape.width; i += WG) { out[base + i] = hidden[base + i] * scale * weight[i]; }
}
