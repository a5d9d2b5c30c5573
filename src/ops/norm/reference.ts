// rms(x, w) = x * rsqrt(mean(x²) + eps) * w, row by row. Rows are tokens, or the heads of tokens.

/** x [rows, size], weight [size] -> [rows, size] */
export function rmsNorm(x: Float32Array, weight: Float32Array, eps: number): Float32Array {
  const size = weight.length
  const out = new Float32Array(x.length)
  for (let start = 0; start < x.length; start += size) {
    let sum = 0
    for (let i = 0; i < size; i++) sum += x[start + i] * x[start + i]
    const scale = 1 / Math.sqrt(sum / size + eps)
    for (let i = 0; i < size; i++) out[start + i] = x[start + i] * scale * weight[i]
  }
  return out
}
