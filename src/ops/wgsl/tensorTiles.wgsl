// What products on matrix units have in workgroup memory, STAGE columns at a time: weights of 4 bits as half floats, and inputs beside
// them, both by rows, so that columns beside each other are loaded together. Tiles are made of eight half floats at a time. Inputs
// are a 16th of what they stand for and weights 16 times: so sums are right as they are, and neither is too large or too small.
#include halves

const STRIDE = STAGE / 8u + 1u; // eights from one row to the next: rows do not begin in the same banks

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

var<workgroup> rowTile: array<vec4<u32>, ROWS * STRIDE>;
var<workgroup> tokenTile: array<vec4<u32>, TOKENS * STRIDE>;

// One of eight scales or biases, 16 times as large.
fn scaleOf(eight: vec4<u32>, index: u32) -> f16 {
  let low = select(eight.x, eight.y, (index & 2u) != 0u);
  let high = select(eight.z, eight.w, (index & 2u) != 0u);
  return f16(16.0 * halfOf(select(low, high, (index & 4u) != 0u), index));
}

// Eight codes of a row, w = scale * code + bias: a code in the lowest bits of 1024 as a half float is 1024 more than itself.
fn weightsOf(codes: u32, scale: vec2<f16>, bias: vec2<f16>) -> vec4<u32> {
  var eight: vec4<u32>;
#for pair 4
  {
    let code = bitcast<vec2<f16>>(((codes >> (4u * $(pair)u)) & 0x000f000fu) | 0x64006400u) - vec2<f16>(1024.0h);
    eight[$(pair)] = bitcast<u32>(fma(code, scale, bias));
  }
#endfor
  return eight;
}

// A unit of 32 codes of a row, of a stage that begins with `column`, by the eight scales and biases that its own are among.
fn putWeights(row: u32, unit: u32, column: u32, codes: vec4<u32>, scales: vec4<u32>, biases: vec4<u32>) {
  let index = (column + unit * 32u) / GROUP;
  let scale = vec2<f16>(scaleOf(scales, index));
  let bias = vec2<f16>(scaleOf(biases, index));
#for word 4
  rowTile[row * STRIDE + unit * 4u + $(word)u] = weightsOf(codes[$(word)], scale, bias);
#endfor
}
