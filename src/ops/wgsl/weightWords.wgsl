// A weight matrix as 32-bit words, for kernels that stage tiles; by BITS as in vecWeights.wgsl. Offsets count words.
// A row is COLS * BITS / 32 words; scales and biases are 16-bit, [rows][COLS / GROUP], addressed in 16-bit elements.
const UNIT_WORDS = BITS; // words of a unit of 32 columns

@group(0) @binding(0) var<storage, read> weights: array<u32>;
#if BITS < 16
#include halves
fn half(index: u32) -> f32 { return halfOf(weights[index >> 1u], index); }
fn scaleWord(at: u32) -> u32 { return weights[at]; }
#endif
#include unitScales
#include codebook

// The 4 columns starting at 4 * quad of the unit at word `at`, as plain numbers (quantized: what scales multiply).
fn unitQuad(at: u32, quad: u32) -> vec4<f32> {
#if BITS == 2
  let word = weights[at + (quad >> 2u)] >> (8u * (quad & 3u));
  return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u));
#elif BITS == 4
  let word = weights[at + (quad >> 1u)] >> (16u * (quad & 1u));
  return codeValues((vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u));
#elif BITS == 8
  return vec4<f32>((vec4<u32>(weights[at + quad]) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
#elif BITS == 16
  let low = weights[at + quad * 2u];
  let high = weights[at + quad * 2u + 1u];
#if SCALE_F16
  return vec4<f32>(unpack2x16float(low), unpack2x16float(high));
#else
  return bitcast<vec4<f32>>(vec4<u32>(low << 16u, low & 0xffff0000u, high << 16u, high & 0xffff0000u));
#endif
#else
  let first = at + quad * 4u;
  return bitcast<vec4<f32>>(vec4<u32>(weights[first], weights[first + 1u], weights[first + 2u], weights[first + 3u]));
#endif
}
