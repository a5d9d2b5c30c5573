// How near two vectors are: the two measures that the tolerance bands speak of.

const NOTHING = 1e-30 // what is smaller is zero: some kernels leave the smallest numbers out

export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let ab = 0
  let aa = 0
  let bb = 0
  for (let i = 0; i < a.length; i++) {
    ab += a[i] * b[i]
    aa += a[i] * a[i]
    bb += b[i] * b[i]
  }
  if (Math.max(aa, bb) < NOTHING ** 2) return 1
  return ab / Math.sqrt(aa * bb)
}

/** The largest |got - want|, relative to the largest |want|, or to `size` where that is more; NaN anywhere gives NaN. */
export function maxDifference(got: ArrayLike<number>, want: ArrayLike<number>, size = 0): number {
  let difference = 0
  let largest = size
  for (let i = 0; i < want.length; i++) {
    const d = Math.abs(got[i] - want[i])
    if (!(d <= difference)) difference = d
    largest = Math.max(largest, Math.abs(want[i]))
  }
  return difference === 0 ? 0 : difference / Math.max(largest, NOTHING)
}
