// Rows of activations as half floats for matrix units. GLU: rows are [gate | up], and what is packed is their activation.
#include halfBits
#if GLU
#include glu
#endif

struct Shape { eights: u32, pad0: u32, pad1: u32, pad2: u32 } // of columns, per row
@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [rows, eights * 2]; GLU: [rows, eights * 4]
@group(0) @binding(2) var<storage, read_write> halves: array<vec4<u32>>; // [rows, eights]
#if LISTED
@group(0) @binding(3) var<storage, read> groups: array<u32>; // [1] rows
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let eight = group.x * 64u + thread;
  if (eight >= shape.eights) { return; }
#if LISTED
  if (group.y >= groups[1]) { return; }
#endif
#if GLU
  let at = group.y * shape.eights * 4u + eight * 2u;
  let upAt = at + shape.eights * 2u;
  halves[group.y * shape.eights + eight] = halvesOf(gluQuad(x[at], x[upAt]), gluQuad(x[at + 1u], x[upAt + 1u]));
#else
  let at = group.y * shape.eights + eight;
  halves[at] = halvesOf(x[at * 2u], x[at * 2u + 1u]);
#endif
}
