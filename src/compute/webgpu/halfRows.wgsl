// Rows of activations as half floats for tensorMul, a 16th of what they are: up to a million is in range, and what is lost is below
// a millionth. Eight columns lie in the order in which their codes unpack: 0 4 1 5 2 6 3 7. What is not finite stays so.
#include finite

struct Shape { eights: u32, pad0: u32, pad1: u32, pad2: u32 } // of columns, per row
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [rows, eights * 2]
@group(0) @binding(2) var<storage, read_write> halves: array<vec4<u32>>; // [rows, eights]

fn halfBits(value: f32) -> u32 {
  let inRange = pack2x16float(vec2<f32>(clamp(value / 16.0, -65504.0, 65504.0), 0.0)) & 0xffffu;
  return select(inRange, 0x7e00u, notFinite(bitcast<u32>(value)) != 0u);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let eight = group.x * 64u + thread;
  if (eight >= shape.eights) { return; }
  let at = group.y * shape.eights + eight;
  let a = x[at * 2u];
  let b = x[at * 2u + 1u];
  var words: vec4<u32>;
  for (var i = 0u; i < 4u; i++) { words[i] = halfBits(a[i]) | (halfBits(b[i]) << 16u); }
  halves[at] = words;
}
