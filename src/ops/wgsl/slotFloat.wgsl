// A float inside an expert's record, such as a bias: element `index` out of the word that holds it.
fn slotFloat(word: u32, index: u32) -> f32 {
#if FLOAT_BITS == 32
  return bitcast<f32>(word);
#elif FLOAT_F16
  let pair = unpack2x16float(word);
  return select(pair.x, pair.y, (index & 1u) == 1u);
#else
  return bitcast<f32>(select(word << 16u, word & 0xffff0000u, (index & 1u) == 1u));
#endif
}
const FLOATS_PER_WORD = 32u / FLOAT_BITS;
