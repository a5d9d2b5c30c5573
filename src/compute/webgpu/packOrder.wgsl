// Which column of a unit of 32 goes to byte `byte` of packed word `word`, for weights of ORDER bits (see weights.wgsl).
fn packedColumn(word: u32, byte: u32) -> u32 {
#if ORDER == 2
  return (word >> 2u) * 16u + (word & 3u) + 4u * byte;
#elif ORDER == 4
  return (word >> 1u) * 8u + (word & 1u) + 2u * byte;
#else
  return word * 4u + byte;
#endif
}
