// Rotary position embedding: the first `rotaryDim` channels of each head rotate in half-split pairs
// (x[i], x[i + rotaryDim/2]) by pos * theta^(-2i / rotaryDim); the others pass.

/** Rotates x [heads, headDim] of the token at `position`, in place. */
export function rope(x: Float32Array, position: number, headDim: number, rotaryDim: number, theta: number): void {
  const half = rotaryDim / 2
  for (let i = 0; i < half; i++) {
    const angle = position * theta ** ((-2 * i) / rotaryDim)
    const cos = Math.cos(angle)
    const sin = Math.sin(angle)
    for (let head = 0; head < x.length; head += headDim) {
      const a = x[head + i]
      const b = x[head + i + half]
      x[head + i] = a * cos - b * sin
      x[head + i + half] = b * cos + a * sin
    }
  }
}
