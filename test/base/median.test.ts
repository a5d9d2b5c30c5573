// The two medians: of an even number of values one of them occurred, the other is between two that
// did.
import { expect, test } from 'vitest'
import { median, upperMedian } from '#moeflux/base/median.js'

test.each([
  [[7], 7, 7],
  [[3, 1, 2], 2, 2],
  [[4, 1, 3, 2], 3, 2.5],
  [[10, 9, 100, 1], 10, 9.5],
])('the medians of %o are %d and %d', (values, upper, mean) => {
  expect([upperMedian(values), median(values)]).toEqual([upper, mean])
})
