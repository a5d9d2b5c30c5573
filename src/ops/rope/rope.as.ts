// Rotary position embedding in half-split pairs. Angles come as a table: the host has exact sines, and few of them.

export function rope(
  x: usize, tokenStride: usize, headStride: usize, table: usize, tableStride: usize, rotaryDim: i32,
  tokens: i32, heads: i32,
): void {
  const half = <usize>(rotaryDim >> 1) << 2
  for (let t: usize = 0; t < <usize>tokens; t++) {
    const cos = table + t * tableStride
    const sin = cos + half
    for (let h: usize = 0; h < <usize>heads; h++) {
      const low = x + t * tokenStride + h * headStride
      const high = low + half
      let i: usize = 0
      for (const end = half & ~15; i < end; i += 16) {
        const a = v128.load(low + i)
        const b = v128.load(high + i)
        const c = v128.load(cos + i)
        const s = v128.load(sin + i)
        v128.store(low + i, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, s)))
        v128.store(high + i, f32x4.add(f32x4.mul(b, c), f32x4.mul(a, s)))
      }
      for (; i < half; i += 4) {
        const a = load<f32>(low + i)
        const b = load<f32>(high + i)
        const c = load<f32>(cos + i)
        const s = load<f32>(sin + i)
        store<f32>(low + i, a * c - b * s)
        store<f32>(high + i, b * c + a * s)
      }
    }
  }
}
