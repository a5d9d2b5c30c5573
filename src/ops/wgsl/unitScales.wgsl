// Scale and bias of a unit of 32 columns, w = scale * code + bias, or of one half of it where groups are 16 (`second`: 1 for
// the last 16 columns). BLOCKS: weights in blocks (model/blockFormats.ts), whose scales are addressed by units; else affine
// groups. `scales` and `biases` count 16-bit elements. Whoever includes this says where words are: scaleWord.
#if BLOCKS
fn scaleIndex(row: u32, units: u32, unit: u32) -> u32 { return row * units + unit; }

fn scaleByte(at: u32) -> u32 { return (scaleWord(at >> 2u) >> (8u * (at & 3u))) & 255u; }

fn scaleInteger(at: u32) -> f32 { return f32(i32(scaleByte(at) << 24u) >> 24u); }

fn scaleHalf(at: u32) -> f32 {
  let pair = unpack2x16float(scaleWord(at >> 2u));
  return select(pair.x, pair.y, (at & 2u) == 2u);
}

fn unitScale(scales: u32, biases: u32, index: u32, second: u32) -> vec2<f32> {
  let base = scales * 2u;
#if SCALES == 2
  let scale = bitcast<f32>((max(scaleByte(base + index), 1u) - 1u) << 23u);
#elif SCALES == 1
  let scale = scaleHalf(base + index * 2u);
#else
  const perSpan = SPAN / GROUP;
#if MINIMA
  const header = 4u;
  const spanBytes = 4u + 2u * perSpan;
#else
  const header = 2u;
  const spanBytes = 2u + perSpan;
#endif
  const spanUnits = SPAN / 32u;
  let span = base + index / spanUnits * spanBytes;
  let at = span + header + index % spanUnits * (32u / GROUP) + second;
  let scale = scaleHalf(span) * scaleInteger(at);
#endif
#if MINIMA
  return vec2<f32>(scale, -scaleHalf(span + 2u) * scaleInteger(at + perSpan));
#else
  return vec2<f32>(scale, -f32(OFFSET) * scale);
#endif
}
#elif BITS < 16
fn scaleIndex(row: u32, units: u32, unit: u32) -> u32 { return row * (units * 32u / GROUP) + unit * 32u / GROUP; }

fn unitScale(scales: u32, biases: u32, index: u32, second: u32) -> vec2<f32> {
  return vec2<f32>(half(scales + index), half(biases + index));
}
#else
fn scaleIndex(row: u32, units: u32, unit: u32) -> u32 { return 0u; }
#endif
