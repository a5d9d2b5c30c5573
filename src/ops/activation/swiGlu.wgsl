// An expert's activation, from rows of [gate | up].
#include glu

struct Shape { width: u32, rows: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> gateUp: array<f32>; // [rows, 2 * width]
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, width]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= shape.width) { return; }
  let source = id.y * shape.width * 2u + id.x;
  out[id.y * shape.width + id.x] = glu(gateUp[source], gateUp[source + shape.width]);
}
