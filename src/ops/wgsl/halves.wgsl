// A 16-bit scale or bias as a number: element `index` of a matrix's halves, out of the word that holds it.
fn halfOf(word: u32, index: u32) -> f32 {
#if SCALE_F16
  let pair = unpack2x16float(word);
  return select(pair.x, pair.y, (index & 1u) == 1u);
#else
  return bitcast<f32>(select(word << 16u, word & 0xffff0000u, (index & 1u) == 1u));
#endif
}
