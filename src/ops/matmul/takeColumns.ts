/** [rows, width] -> [rows, size] from column `start`. */
export function takeColumns(x: Float32Array, width: number, start: number, size: number): Float32Array {
  const rows = x.length / width
  const out = new Float32Array(rows * size)
  for (let row = 0; row < rows; row++) out.set(x.subarray(row * width + start, row * width + start + size), row * size)
  return out
}
