// The input vector of a mat-vec workgroup in workgroup memory, BLOCK columns at a time, as signed bytes with a scale per
// unit of 32 (FAST) or as float32. Bytes lie in the order in which weights of BITS bits unpack (see unitDot).
const BLOCK_UNITS = BLOCK / 32u;
#if FAST
var<workgroup> inputWords: array<vec4<u32>, BLOCK_UNITS * 2u>;
var<workgroup> inputScales: array<vec2<f32>, BLOCK_UNITS>; // scale, scale * sum
#else
var<workgroup> inputValues: array<vec4<f32>, BLOCK_UNITS * 8u>;
var<workgroup> inputSums: array<f32, BLOCK_UNITS>;
#endif

#if FAST
// The largest magnitude, as bits: they order positive floats, and put infinity and NaN above all, where `max` of floats
// may lose a NaN. The scale is then NaN, and so is what comes out.
fn largestOf(v: vec4<f32>) -> u32 {
  let a = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
  return max(max(a.x, a.y), max(a.z, a.w));
}

// Four values of a unit as one packed word; `inverse` is 1 / the largest magnitude.
fn packWord(v: vec4<f32>, inverse: f32) -> u32 { return pack4x8snorm(v * inverse); }

fn stageUnit(unit: u32, v: ptr<function, array<vec4<f32>, 8>>, weight: f32) {
  var bits = 0u;
  for (var i = 0u; i < 8u; i++) { bits = max(bits, largestOf((*v)[i])); }
  let largest = bitcast<f32>(bits);
  let inverse = select(0.0, 1.0 / largest, largest > 0.0);
  var words: array<u32, 8>;
#if BITS == 8
  for (var i = 0u; i < 8u; i++) { words[i] = packWord((*v)[i], inverse); }
#elif BITS == 4
  for (var i = 0u; i < 4u; i++) {
    let a = (*v)[2u * i];
    let b = (*v)[2u * i + 1u];
    words[2u * i] = packWord(vec4<f32>(a.x, a.z, b.x, b.z), inverse);
    words[2u * i + 1u] = packWord(vec4<f32>(a.y, a.w, b.y, b.w), inverse);
  }
#else
  for (var i = 0u; i < 2u; i++) {
    let t = transpose(mat4x4<f32>((*v)[4u * i], (*v)[4u * i + 1u], (*v)[4u * i + 2u], (*v)[4u * i + 3u]));
    for (var j = 0u; j < 4u; j++) { words[4u * i + j] = packWord(t[j], inverse); }
  }
#endif
  var total = 0;
  for (var i = 0u; i < 8u; i++) { total += dot4(words[i], 0x01010101u); }
  inputWords[2u * unit] = vec4<u32>(words[0], words[1], words[2], words[3]);
  inputWords[2u * unit + 1u] = vec4<u32>(words[4], words[5], words[6], words[7]);
  let scale = weight * largest / 127.0;
  inputScales[unit] = vec2<f32>(scale, scale * f32(total));
}

// One unit of one row, loaded but not yet used: loads are issued early, memory is far.
struct UnitLoad {
  words: WeightLoad,
#if BITS == 8
  more: WeightLoad,
#endif
  scale: f32,
  bias: f32,
}

fn loadUnit(at: u32, scaleAt: u32, biasAt: u32) -> UnitLoad {
#if BITS == 8
  return UnitLoad(weights[at], weights[at + 1u], half(scaleAt), half(biasAt));
#else
  return UnitLoad(weights[at], half(scaleAt), half(biasAt));
#endif
}

fn unitProduct(load: UnitLoad, unit: u32) -> f32 {
  let a = inputWords[2u * unit];
  let b = inputWords[2u * unit + 1u];
  let s = inputScales[unit];
  let w = load.words;
#if BITS == 2
  const m = 0x03030303u;
  let product = dot4(w.x & m, a.x) + dot4((w.x >> 2u) & m, a.y) + dot4((w.x >> 4u) & m, a.z) + dot4((w.x >> 6u) & m, a.w)
    + dot4(w.y & m, b.x) + dot4((w.y >> 2u) & m, b.y) + dot4((w.y >> 4u) & m, b.z) + dot4((w.y >> 6u) & m, b.w);
#elif BITS == 4
  const m = 0x0f0f0f0fu;
  let product = dot4(w.x & m, a.x) + dot4((w.x >> 4u) & m, a.y) + dot4(w.y & m, a.z) + dot4((w.y >> 4u) & m, a.w)
    + dot4(w.z & m, b.x) + dot4((w.z >> 4u) & m, b.y) + dot4(w.w & m, b.z) + dot4((w.w >> 4u) & m, b.w);
#else
  // q is shifted by 128 to fit a signed byte; the bias takes the shift back.
  let p = w ^ vec4<u32>(0x80808080u);
  let q = load.more ^ vec4<u32>(0x80808080u);
  let product = dot4(p.x, a.x) + dot4(p.y, a.y) + dot4(p.z, a.z) + dot4(p.w, a.w)
    + dot4(q.x, b.x) + dot4(q.y, b.y) + dot4(q.z, b.z) + dot4(q.w, b.w);
#endif
#if BITS == 8
  return load.scale * s.x * f32(product) + (load.bias + 128.0 * load.scale) * s.y;
#else
  return load.scale * s.x * f32(product) + load.bias * s.y;
#endif
}
#else
fn stageUnit(unit: u32, v: ptr<function, array<vec4<f32>, 8>>, weight: f32) {
  var total = vec4<f32>();
  for (var i = 0u; i < 8u; i++) {
    let value = (*v)[i] * weight;
    inputValues[unit * 8u + i] = value;
    total += value;
  }
  inputSums[unit] = total.x + total.y + total.z + total.w;
}

// Eight columns of a word pair or so against eight inputs, by format.
fn unitDot(at: u32, unit: u32) -> f32 {
  var total = vec4<f32>();
#if BITS == 2
  let w = weights[at];
  for (var i = 0u; i < 8u; i++) {
    let word = select(w.x, w.y, i > 3u) >> (8u * (i & 3u));
    total += vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u)) * inputValues[unit * 8u + i];
  }
#elif BITS == 4
  let w = weights[at];
  for (var i = 0u; i < 4u; i++) {
    let q = vec4<u32>(w[i]) >> vec4<u32>(0u, 4u, 8u, 12u);
    total += vec4<f32>(q & vec4<u32>(15u)) * inputValues[unit * 8u + 2u * i];
    total += vec4<f32>((q >> vec4<u32>(16u)) & vec4<u32>(15u)) * inputValues[unit * 8u + 2u * i + 1u];
  }
#elif BITS == 8
  for (var i = 0u; i < 8u; i++) {
    let word = weights[at + (i >> 2u)][i & 3u];
    total += vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)) * inputValues[unit * 8u + i];
  }
#elif BITS == 16
  for (var i = 0u; i < 4u; i++) {
    let w = weights[at + i];
#if SCALE_F16
    total += vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y)) * inputValues[unit * 8u + 2u * i];
    total += vec4<f32>(unpack2x16float(w.z), unpack2x16float(w.w)) * inputValues[unit * 8u + 2u * i + 1u];
#else
    let low = bitcast<vec4<f32>>(w << vec4<u32>(16u));
    let high = bitcast<vec4<f32>>(w & vec4<u32>(0xffff0000u));
    total += vec4<f32>(low.x, high.x, low.y, high.y) * inputValues[unit * 8u + 2u * i];
    total += vec4<f32>(low.z, high.z, low.w, high.w) * inputValues[unit * 8u + 2u * i + 1u];
#endif
  }
#else
  for (var i = 0u; i < 8u; i++) { total += bitcast<vec4<f32>>(weights[at + i]) * inputValues[unit * 8u + i]; }
#endif
  return total.x + total.y + total.z + total.w;
}

// Where one unit of one row lies; float32 inputs leave little room in registers, so weights are loaded when used.
struct UnitLoad { at: u32, scale: f32, bias: f32 }

fn loadUnit(at: u32, scaleAt: u32, biasAt: u32) -> UnitLoad {
#if BITS < 16
  return UnitLoad(at, half(scaleAt), half(biasAt));
#else
  return UnitLoad(at, 1.0, 0.0);
#endif
}

fn unitProduct(load: UnitLoad, unit: u32) -> f32 {
  return load.scale * unitDot(load.at, unit) + load.bias * inputSums[unit];
}
#endif
