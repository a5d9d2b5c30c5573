// Activations to signed bytes, 32 columns with one scale; scale * sum goes along for the weights' biases. SWIGLU: the
// input row is [gate | up], and what is packed is their activation. Eight threads per unit, one quad each.
#include glu
#include dot4
#include packWords

struct Shape { units: u32, rows: u32, pad0: u32, pad1: u32 } // units of 32 columns per row
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [rows, units * 32]
@group(0) @binding(2) var<storage, read_write> packed: array<u32>; // [rows, units * 8]
@group(0) @binding(3) var<storage, read_write> scales: array<vec2<f32>>; // [rows, units]

var<workgroup> quads: array<vec4<f32>, 64>;
var<workgroup> sums: array<i32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let first = thread & 56u;
  let part = thread & 7u;
  let unit = group.x * 8u + thread / 8u;
  let isIn = unit < shape.units;
  let row = group.y;
  let quad = min(unit, shape.units - 1u) * 8u + part;
#if SWIGLU
  let gate = x[row * shape.units * 16u + quad];
  let up = x[row * shape.units * 16u + shape.units * 8u + quad];
  let value = gluQuad(gate, up);
#else
  let value = x[row * shape.units * 8u + quad];
#endif
  quads[thread] = value;
  workgroupBarrier();
  // Magnitudes as bits: they order positive floats, and put NaN above all, where `max` of floats may lose it.
  var largest = vec4<u32>();
  for (var i = 0u; i < 8u; i++) {
    largest = max(largest, bitcast<vec4<u32>>(quads[first + i]) & vec4<u32>(0x7fffffffu));
  }
  let peak = bitcast<f32>(max(max(largest.x, largest.y), max(largest.z, largest.w)));
  let inverse = select(0.0, 1.0 / peak, peak > 0.0);
  let word = pack4x8snorm(packedQuad(first, part) * inverse);
  sums[thread] = dot4(word, 0x01010101u);
  workgroupBarrier();
  if (!isIn) { return; }
  packed[(row * shape.units + unit) * 8u + part] = word;
  if (part == 0u) {
    var total = 0;
    for (var i = 0u; i < 8u; i++) { total += sums[first + i]; }
    scales[row * shape.units + unit] = vec2<f32>(peak / 127.0, peak / 127.0 * f32(total));
  }
}
