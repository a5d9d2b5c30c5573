// The input vector of a mat-vec workgroup in workgroup memory, BLOCK columns at a time, as signed bytes with a scale per
// unit of 32 (FAST) or as float32. Bytes lie in the order in which weights of BITS bits unpack (see unitDot).
// STAGERS neighbouring threads bring a unit together, STAGED quads each, or one brings it alone.
const BLOCK_UNITS = BLOCK / 32u;
const STAGED = 8u / STAGERS;
#if FAST
var<workgroup> inputWords: array<vec4<u32>, BLOCK_UNITS * 2u>;
var<workgroup> inputScales: array<vec2<f32>, BLOCK_UNITS>; // scale, scale * sum
#if GROUP == 16
var<workgroup> inputHalves: array<vec2<f32>, BLOCK_UNITS>; // scale * sum of the first 16 columns, of the last
#endif
#else
var<workgroup> inputValues: array<vec4<f32>, BLOCK_UNITS * 8u>;
var<workgroup> inputSums: array<vec2<f32>, BLOCK_UNITS>; // of the first 16 columns, of the last
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

// `task`: a unit and the thread's part of it. All threads come here, some of them for nothing (`isIn`).
fn stageUnit(task: u32, isIn: bool, v: ptr<function, array<vec4<f32>, STAGED>>, weight: f32) {
  var bits = 0u;
  for (var i = 0u; i < STAGED; i++) { bits = max(bits, largestOf((*v)[i])); }
#if STAGERS == 4
  bits = max(bits, subgroupShuffleXor(bits, 1u));
  bits = max(bits, subgroupShuffleXor(bits, 2u));
#endif
  let largest = bitcast<f32>(bits);
  let inverse = select(0.0, 1.0 / largest, largest > 0.0);
  var words: array<u32, STAGED>;
#if BITS == 8
  for (var i = 0u; i < STAGED; i++) { words[i] = packWord((*v)[i], inverse); }
#elif BITS == 4
  for (var i = 0u; i < STAGED; i += 2u) {
    let a = (*v)[i];
    let b = (*v)[i + 1u];
    words[i] = packWord(vec4<f32>(a.x, a.z, b.x, b.z), inverse);
    words[i + 1u] = packWord(vec4<f32>(a.y, a.w, b.y, b.w), inverse);
  }
#else
  for (var i = 0u; i < 2u; i++) {
    let t = transpose(mat4x4<f32>((*v)[4u * i], (*v)[4u * i + 1u], (*v)[4u * i + 2u], (*v)[4u * i + 3u]));
    for (var j = 0u; j < 4u; j++) { words[4u * i + j] = packWord(t[j], inverse); }
  }
#endif
  var first = 0;
  var second = 0;
#if STAGERS == 4
  let own = dot4(words[0], 0x01010101u) + dot4(words[1], 0x01010101u);
  first = own + subgroupShuffleXor(own, 1u);
  second = subgroupShuffleXor(first, 2u);
  let four = vec4<u32>(words[0], words[1], subgroupShuffleXor(words[0], 1u), subgroupShuffleXor(words[1], 1u));
  if (isIn && task % 2u == 0u) { inputWords[task / 2u] = four; }
  let isFirst = isIn && task % 4u == 0u;
#else
  for (var i = 0u; i < 4u; i++) {
    first += dot4(words[i], 0x01010101u);
    second += dot4(words[i + 4u], 0x01010101u);
  }
  if (isIn) {
    inputWords[2u * task] = vec4<u32>(words[0], words[1], words[2], words[3]);
    inputWords[2u * task + 1u] = vec4<u32>(words[4], words[5], words[6], words[7]);
  }
  let isFirst = isIn;
#endif
  let scale = weight * largest / 127.0;
  if (isFirst) {
    inputScales[task / STAGERS] = vec2<f32>(scale, scale * f32(first + second));
#if GROUP == 16
    inputHalves[task / STAGERS] = scale * vec2<f32>(f32(first), f32(second));
#endif
  }
}

// One unit of one row, loaded but not yet used: loads are issued early, memory is far.
struct UnitLoad {
  words: WeightLoad,
#if BITS == 8
  more: WeightLoad,
#endif
  scale: vec2<f32>, // and bias
#if GROUP == 16
  second: vec2<f32>, // of the last 16 columns
#endif
}

fn loadUnit(at: u32, scales: u32, biases: u32, index: u32) -> UnitLoad {
  var load: UnitLoad;
  load.words = weights[at];
#if BITS == 8
  load.more = weights[at + 1u];
#endif
  load.scale = unitScale(scales, biases, index, 0u);
#if GROUP == 16
  load.second = unitScale(scales, biases, index, 1u);
#endif
  return load;
}

// The products of the first 16 columns and of the last.
fn unitDots(load: UnitLoad, unit: u32) -> vec2<i32> {
  let a = inputWords[2u * unit];
  let b = inputWords[2u * unit + 1u];
  let w = load.words;
#if BITS == 2
  const m = 0x03030303u;
  return vec2<i32>(
    dot4(w.x & m, a.x) + dot4((w.x >> 2u) & m, a.y) + dot4((w.x >> 4u) & m, a.z) + dot4((w.x >> 6u) & m, a.w),
    dot4(w.y & m, b.x) + dot4((w.y >> 2u) & m, b.y) + dot4((w.y >> 4u) & m, b.z) + dot4((w.y >> 6u) & m, b.w),
  );
#elif BITS == 4
  const m = 0x0f0f0f0fu;
  return vec2<i32>(
    dot4(codeWord(w.x & m), a.x) + dot4(codeWord((w.x >> 4u) & m), a.y)
      + dot4(codeWord(w.y & m), a.z) + dot4(codeWord((w.y >> 4u) & m), a.w),
    dot4(codeWord(w.z & m), b.x) + dot4(codeWord((w.z >> 4u) & m), b.y)
      + dot4(codeWord(w.w & m), b.z) + dot4(codeWord((w.w >> 4u) & m), b.w),
  );
#else
  // q is shifted by 128 to fit a signed byte; the bias takes the shift back.
  let p = w ^ vec4<u32>(0x80808080u);
  let q = load.more ^ vec4<u32>(0x80808080u);
  return vec2<i32>(
    dot4(p.x, a.x) + dot4(p.y, a.y) + dot4(p.z, a.z) + dot4(p.w, a.w),
    dot4(q.x, b.x) + dot4(q.y, b.y) + dot4(q.z, b.z) + dot4(q.w, b.w),
  );
#endif
}

fn biasOf(scale: vec2<f32>) -> f32 {
#if BITS == 8
  return scale.y + 128.0 * scale.x;
#else
  return scale.y;
#endif
}

fn unitProduct(load: UnitLoad, unit: u32) -> f32 {
  let dots = unitDots(load, unit);
  let s = inputScales[unit];
#if GROUP == 16
  let sums = inputHalves[unit];
  return s.x * (load.scale.x * f32(dots.x) + load.second.x * f32(dots.y))
    + biasOf(load.scale) * sums.x + biasOf(load.second) * sums.y;
#else
  return load.scale.x * s.x * f32(dots.x + dots.y) + biasOf(load.scale) * s.y;
#endif
}
#else
fn stageUnit(unit: u32, isIn: bool, v: ptr<function, array<vec4<f32>, STAGED>>, weight: f32) {
  if (!isIn) { return; }
  var first = vec4<f32>();
  var second = vec4<f32>();
  for (var i = 0u; i < 4u; i++) {
    let a = (*v)[i] * weight;
    let b = (*v)[i + 4u] * weight;
    inputValues[unit * 8u + i] = a;
    inputValues[unit * 8u + i + 4u] = b;
    first += a;
    second += b;
  }
  inputSums[unit] = vec2<f32>(first.x + first.y + first.z + first.w, second.x + second.y + second.z + second.w);
}

// Eight columns of a word pair or so against eight inputs, by format: all of the unit, or where groups are 16 its halves.
fn unitDot(at: u32, unit: u32) -> vec2<f32> {
  var total = vec4<f32>();
  var first = vec4<f32>();
#if BITS == 2
  let w = weights[at];
  for (var i = 0u; i < 8u; i++) {
#if GROUP == 16
    if (i == 4u) {
      first = total;
      total = vec4<f32>();
    }
#endif
    let word = select(w.x, w.y, i > 3u) >> (8u * (i & 3u));
    total += vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u)) * inputValues[unit * 8u + i];
  }
#elif BITS == 4
  let w = weights[at];
  for (var i = 0u; i < 4u; i++) {
#if GROUP == 16
    if (i == 2u) {
      first = total;
      total = vec4<f32>();
    }
#endif
    let q = vec4<u32>(w[i]) >> vec4<u32>(0u, 4u, 8u, 12u);
    total += codeValues(q & vec4<u32>(15u)) * inputValues[unit * 8u + 2u * i];
    total += codeValues((q >> vec4<u32>(16u)) & vec4<u32>(15u)) * inputValues[unit * 8u + 2u * i + 1u];
  }
#elif BITS == 8
  for (var i = 0u; i < 8u; i++) {
#if GROUP == 16
    if (i == 4u) {
      first = total;
      total = vec4<f32>();
    }
#endif
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
  return vec2<f32>(total.x + total.y + total.z + total.w, first.x + first.y + first.z + first.w);
}

// Where one unit of one row lies; float32 inputs leave little room in registers, so weights are loaded when used.
struct UnitLoad {
  at: u32,
  scale: vec2<f32>, // and bias
#if GROUP == 16
  second: vec2<f32>,
#endif
}

fn loadUnit(at: u32, scales: u32, biases: u32, index: u32) -> UnitLoad {
  var load: UnitLoad;
  load.at = at;
#if BITS < 16
  load.scale = unitScale(scales, biases, index, 0u);
#if GROUP == 16
  load.second = unitScale(scales, biases, index, 1u);
#endif
#else
  load.scale = vec2<f32>(1.0, 0.0);
#endif
  return load;
}

fn unitProduct(load: UnitLoad, unit: u32) -> f32 {
  let dots = unitDot(load.at, unit);
  let sums = inputSums[unit];
#if GROUP == 16
  return load.scale.x * dots.y + load.second.x * dots.x + load.scale.y * sums.x + load.second.y * sums.y;
#else
  return load.scale.x * dots.x + load.scale.y * (sums.x + sums.y);
#endif
}
#endif
