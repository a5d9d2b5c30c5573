// The embedding rows of the step's tokens. A table too large for one binding comes in parts of rows; each part writes
// the tokens that it holds.
#include weightWords
#include token

struct Part { cols: u32, firstRow: u32, rows: u32, scales: u32, biases: u32, pad0: u32, pad1: u32, pad2: u32 }
@group(0) @binding(1) var<uniform> part: Part;
@group(0) @binding(2) var<storage, read> tokens: array<Token>;
@group(0) @binding(3) var<storage, read_write> hidden: array<f32>; // [tokens, cols]

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let row = tokens[group.x].id - part.firstRow; // wraps below firstRow
  if (row >= part.rows) { return; }
  let units = part.cols / 32u;
  for (var unit = thread; unit < units; unit += 64u) {
    let at = (row * units + unit) * UNIT_WORDS;
#if BITS < 16
    let index = scaleIndex(row, units, unit);
    let first = unitScale(part.scales, part.biases, index, 0u);
#if GROUP == 16
    let second = unitScale(part.scales, part.biases, index, 1u);
#else
    let second = first;
#endif
#endif
    for (var quad = 0u; quad < 8u; quad++) {
#if BITS < 16
      let scale = select(first, second, quad > 3u);
      let values = unitQuad(at, quad) * scale.x + scale.y;
#else
      let values = unitQuad(at, quad);
#endif
      for (var i = 0u; i < 4u; i++) { hidden[group.x * part.cols + unit * 32u + quad * 4u + i] = values[i]; }
    }
  }
}
