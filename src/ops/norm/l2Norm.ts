// x * rsqrt(sum(x²) + 1e-6) * scale, row by row: query and key of the delta net. Rows are the key heads of tokens.

/** x [rows, size] -> [rows, size] */
export function l2Norm(x: Float32Array, size: number, scale = 1): Float32Array {
  const out = new Float32Array(x.length)
  for (let start = 0; start < x.length; start += size) {
    let sum = 0
    for (let i = 0; i < size; i++) sum += x[start + i] * x[start + i]
    const factor = scale / Math.sqrt(sum + 1e-6)
    for (let i = 0; i < size; i++) out[start + i] = x[start + i] * factor
  }
  return out
}
