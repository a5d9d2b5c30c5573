// The ranges of a Range header, and which are refused.
import { expect, test } from 'vitest'
import { byteRange } from '#moeflux/server/byteRange.js'

test.each([
  [undefined, 'whole'],
  ['bytes=0-0', { start: 0, end: 1 }],
  ['bytes=2-', { start: 2, end: 10 }],
  ['bytes=2-99', { start: 2, end: 10 }],
  ['bytes=-3', { start: 7, end: 10 }],
  ['bytes=-99', { start: 0, end: 10 }],
  ['bytes=-0', 'unsatisfiable'],
  ['bytes=10-', 'unsatisfiable'],
  ['bytes=99999999999999999999-', 'unsatisfiable'],
  ['bytes=5-2', 'whole'],
  ['bytes=0-1,4-5', 'whole'],
  ['bytes=-', 'whole'],
  ['lines=1-2', 'whole'],
  ['nonsense', 'whole'],
])('%s of 10 bytes', (header, want) => {
  expect(byteRange(header, 10)).toEqual(want)
})
