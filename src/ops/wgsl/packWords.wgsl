// The four columns of packed word `word` of a unit whose quads start at `first`, in the order in which weights of ORDER
// bits unpack (see matMul): 8-bit words are in order, 4-bit ones alternate, 2-bit ones take every fourth.
fn packedQuad(first: u32, word: u32) -> vec4<f32> {
#if ORDER == 8
  return quads[first + word];
#elif ORDER == 4
  let a = quads[first + (word & 6u)];
  let b = quads[first + (word & 6u) + 1u];
  return select(vec4<f32>(a.x, a.z, b.x, b.z), vec4<f32>(a.y, a.w, b.y, b.w), (word & 1u) == 1u);
#else
  let at = first + (word & 4u);
  let c = word & 3u;
  return vec4<f32>(quads[at][c], quads[at + 1u][c], quads[at + 2u][c], quads[at + 3u][c]);
#endif
}
