// How near two vectors are: the two measures that the tolerance bands speak of.

export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let ab = 0
  let aa = 0
  let bb = 0
  for (let i = 0; i < a.length; i++) {
    ab += a[i] * b[i]
    aa += a[i] * a[i]
    bb += b[i] * b[i]
  }
  if (aa === 0 && bb === 0) return 1
  return ab / Math.sqrt(aa * bb)
}

/** The largest |got - want|, relative to the largest |want|; NaN anywhere gives NaN. */
export function maxDifference(got: ArrayLike<number>, want: ArrayLike<number>): number {
  let difference = 0
  let largest = 0
  for (let i = 0; i < want.length; i++) {
    const d = Math.abs(got[i] - want[i])
    if (!(d <= difference)) difference = d
    largest = Math.max(largest, Math.abs(want[i]))
  }
  return difference === 0 ? 0 : difference / Math.max(largest, 1e-30)
}
