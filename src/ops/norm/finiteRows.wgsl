// Raises a flag where a value of a row is NaN or infinite. One workgroup per row.
#include finite
const WG = 256u;

struct Shape { width: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> rows: array<u32>; // [rows, width]: floats as bits
@group(0) @binding(2) var<storage, read_write> flag: array<u32>; // [0] 1: some row is not finite

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  var isWrong = 0u;
  for (var i = thread; i < shape.width; i += WG) { isWrong |= notFinite(rows[group.x * shape.width + i]); }
  // Whoever writes writes the same.
  if (isWrong != 0u) { flag[0] = 1u; }
}
