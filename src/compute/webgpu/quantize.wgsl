// Activations to signed bytes, 32 columns with one scale; scale * sum goes along for the weights' biases. SWIGLU: the
// input row is [gate | up], and what is quantized is silu(gate) * up. One thread per unit.
#include packOrder
#include activations

struct Shape { units: u32, rows: u32, pad0: u32, pad1: u32 } // units of 32 columns per row
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> x: array<f32>; // [rows, units * 32]
@group(0) @binding(2) var<storage, read_write> packed: array<u32>; // [rows, units * 8]
@group(0) @binding(3) var<storage, read_write> scales: array<vec2<f32>>; // [rows, units]

fn valueAt(row: u32, column: u32) -> f32 {
#if SWIGLU
  let source = row * shape.units * 64u + column;
  return silu(x[source]) * x[source + shape.units * 32u];
#else
  return x[row * shape.units * 32u + column];
#endif
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let unit = id.x;
  let row = id.y;
  if (unit >= shape.units) { return; }
  var largest = 0.0;
  for (var i = 0u; i < 32u; i++) { largest = max(largest, abs(valueAt(row, unit * 32u + i))); }
  let scale = largest / 127.0;
  let inverse = select(0.0, 127.0 / largest, largest > 0.0);
  var total = 0;
  for (var word = 0u; word < 8u; word++) {
    var bits = 0u;
    for (var byte = 0u; byte < 4u; byte++) {
      let q = i32(round(valueAt(row, unit * 32u + packedColumn(word, byte)) * inverse));
      total += q;
      bits |= (u32(q) & 255u) << (8u * byte);
    }
    packed[(row * shape.units + unit) * 8u + word] = bits;
  }
  scales[row * shape.units + unit] = vec2<f32>(scale, scale * f32(total));
}
