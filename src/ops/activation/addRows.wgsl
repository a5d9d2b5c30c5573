// hidden += rows that came from elsewhere. Workgroup (piece, token).
struct Shape { width: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> rows: array<f32>; // [tokens, width]
@group(0) @binding(2) var<storage, read_write> hidden: array<f32>; // [tokens, width]

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= shape.width) { return; }
  let at = id.y * shape.width + id.x;
  hidden[at] += rows[at];
}
