// A number as a half float for matrix units, a 16th of what it is: up to a million is in range, and what is lost is below a
// millionth. What is not finite stays so.
#include finite

fn halfBits(value: f32) -> u32 {
  let inRange = pack2x16float(vec2<f32>(clamp(value / 16.0, -65504.0, 65504.0), 0.0)) & 0xffffu;
  return select(inRange, 0x7e00u, notFinite(bitcast<u32>(value)) != 0u);
}

// Eight columns in the order in which their codes unpack: 0 4 1 5 2 6 3 7.
fn halvesOf(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
  var words: vec4<u32>;
  for (var i = 0u; i < 4u; i++) { words[i] = halfBits(a[i]) | (halfBits(b[i]) << 16u); }
  return words;
}
