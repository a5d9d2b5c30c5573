// How a weight matrix lies in a storage buffer, by BITS: 2, 4 and 8 are affine groups (w = s*q + b), 16 and 32 plain
// floats. Everything is cut into units of 32 columns, which no group straddles; a unit is UNIT_LOADS loads.
// A row is COLS / 32 units; scales and biases are 16-bit, [rows][COLS / GROUP], addressed in 16-bit elements.
#if BITS == 2
alias WeightLoad = vec2<u32>;
#else
alias WeightLoad = vec4<u32>;
#endif
#if BITS == 2
const UNIT_LOADS = 1u;
#elif BITS == 4
const UNIT_LOADS = 1u;
#elif BITS == 8
const UNIT_LOADS = 2u;
#elif BITS == 16
const UNIT_LOADS = 4u;
#else
const UNIT_LOADS = 8u;
#endif

@group(0) @binding(0) var<storage, read> weights: array<WeightLoad>;
#if BITS < 16
@group(0) @binding(1) var<storage, read> halves: array<u32>; // the same buffer: scales and biases

fn half(index: u32) -> f32 {
#if SCALE_F16
  let pair = unpack2x16float(halves[index >> 1u]);
  return select(pair.x, pair.y, (index & 1u) == 1u);
#else
  let word = halves[index >> 1u];
  return bitcast<f32>(select(word << 16u, word & 0xffff0000u, (index & 1u) == 1u));
#endif
}
#else
@group(0) @binding(1) var<storage, read> unusedHalves: array<u32>;
#endif

// The 4 columns starting at 4 * quad of a unit, as plain numbers (quantized: the q values).
fn unitQuad(load: ptr<function, array<WeightLoad, UNIT_LOADS>>, quad: u32) -> vec4<f32> {
#if BITS == 2
  let word = (*load)[0][quad >> 2u] >> (8u * (quad & 3u));
  return vec4<f32>(f32(word & 3u), f32((word >> 2u) & 3u), f32((word >> 4u) & 3u), f32((word >> 6u) & 3u));
#elif BITS == 4
  let word = (*load)[0][quad >> 1u] >> (16u * (quad & 1u));
  return vec4<f32>(f32(word & 15u), f32((word >> 4u) & 15u), f32((word >> 8u) & 15u), f32((word >> 12u) & 15u));
#elif BITS == 8
  let word = (*load)[quad >> 2u][quad & 3u];
  return vec4<f32>(f32(word & 255u), f32((word >> 8u) & 255u), f32((word >> 16u) & 255u), f32(word >> 24u));
#elif BITS == 16
  let low = (*load)[quad >> 1u][(quad & 1u) * 2u];
  let high = (*load)[quad >> 1u][(quad & 1u) * 2u + 1u];
#if SCALE_F16
  return vec4<f32>(unpack2x16float(low), unpack2x16float(high));
#else
  return vec4<f32>(bitcast<f32>(low << 16u), bitcast<f32>(low & 0xffff0000u),
                   bitcast<f32>(high << 16u), bitcast<f32>(high & 0xffff0000u));
#endif
#else
  return bitcast<vec4<f32>>((*load)[quad]);
#endif
}

fn loadUnit(at: u32) -> array<WeightLoad, UNIT_LOADS> {
  var load: array<WeightLoad, UNIT_LOADS>;
  for (var i = 0u; i < UNIT_LOADS; i++) { load[i] = weights[at + i]; }
  return load;
}

#if FAST
// Word `word` (of 8) of a unit as four signed 8-bit numbers. 8-bit weights are shifted by -128. The order of columns
// inside a unit is what unpacking gives for nothing; activations are packed in the same order (packOrder).
fn unitWord(load: ptr<function, array<WeightLoad, UNIT_LOADS>>, word: u32) -> u32 {
#if BITS == 2
  return ((*load)[0][word >> 2u] >> (2u * (word & 3u))) & 0x03030303u;
#elif BITS == 4
  return ((*load)[0][word >> 1u] >> (4u * (word & 1u))) & 0x0f0f0f0fu;
#else
  return (*load)[word >> 2u][word & 3u] ^ 0x80808080u;
#endif
}
#if BITS == 8
const SHIFT = 128.0;
#else
const SHIFT = 0.0;
#endif
#endif
