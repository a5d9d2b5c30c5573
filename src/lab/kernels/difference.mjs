/** The largest difference of as many values as are wanted, over the largest of them; NaN where one is. */
export function difference(got, want) {
  const largest = want.reduce((max, value) => Math.max(max, Math.abs(value)), 1e-30)
  return want.reduce((max, value, i) => {
    const off = Math.abs(got[i] - value) / largest
    return off <= max ? max : off // NaN stays
  }, 0)
}
