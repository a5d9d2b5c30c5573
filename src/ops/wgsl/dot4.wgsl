// Four signed 8-bit products added up.
#if PACKED_DOT
fn dot4(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }
#else
fn dot4(a: u32, b: u32) -> i32 {
  let p = vec4<i32>(i32(a << 24u) >> 24u, i32(a << 16u) >> 24u, i32(a << 8u) >> 24u, i32(a) >> 24u);
  let q = vec4<i32>(i32(b << 24u) >> 24u, i32(b << 16u) >> 24u, i32(b << 8u) >> 24u, i32(b) >> 24u);
  return dot(p, q);
}
#endif
