// hidden += delta (ADD), then out = rms(hidden) * weight, with HALVES as half floats for matrix units, too. One workgroup per token.
#include reduce
#if HALVES
#include halfBits
#endif

struct Shape { width: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> weight: array<f32>; // [width]
@group(0) @binding(2) var<storage, read> delta: array<f32>; // [tokens, width]
@group(0) @binding(3) var<storage, read_write> hidden: array<f32>; // [tokens, width]
@group(0) @binding(4) var<storage, read_write> out: array<f32>; // [tokens, width]
#if HALVES
@group(0) @binding(5) var<storage, read_write> halves: array<vec4<u32>>; // [tokens, width / 8]
#endif

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
#if HALVES
  for (var eight = thread; eight < shape.width / 8u; eight += WG) {
    var values: array<vec4<f32>, 2>;
    for (var i = 0u; i < 8u; i++) {
      let at = eight * 8u + i;
      let value = hidden[base + at] * scale * weight[at];
      values[i / 4u][i % 4u] = value;
      out[base + at] = value;
    }
    halves[base / 8u + eight] = halvesOf(values[0], values[1]);
  }
#else
  for (var i = thread; i < shape.width; i += WG) { out[base + i] = hidden[base + i] * scale * weight[i]; }
#endif
}
