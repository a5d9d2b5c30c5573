// The codes that numbers of four bits mean: entries of a book of sixteen signed bytes, BOOK0 to BOOK3, lowest first.
#if BOOK
fn bookByte(index: u32) -> u32 {
  let low = select(BOOK0, BOOK1, index > 3u);
  let high = select(BOOK2, BOOK3, index > 11u);
  return (select(low, high, index > 7u) >> ((index & 3u) * 8u)) & 255u;
}

// Four numbers, one in each byte.
fn codeWord(word: u32) -> u32 {
  return bookByte(word & 15u) | (bookByte((word >> 8u) & 15u) << 8u)
    | (bookByte((word >> 16u) & 15u) << 16u) | (bookByte((word >> 24u) & 15u) << 24u);
}

fn codeValue(index: u32) -> f32 { return f32(i32(bookByte(index) << 24u) >> 24u); }

fn codeValues(q: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(codeValue(q.x), codeValue(q.y), codeValue(q.z), codeValue(q.w));
}
#else
fn codeWord(word: u32) -> u32 { return word; }

fn codeValues(q: vec4<u32>) -> vec4<f32> { return vec4<f32>(q); }
#endif
