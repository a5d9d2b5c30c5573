// How many threads are taken of those that somebody asks for, and what is said about it.
import { expect, test } from 'vitest'
import { threadCount, threadNotice } from '#moeflux/backends/wasm/clampThreads.js'

test.each([
  [undefined, 2, undefined, null],
  [1, 2, 1, null],
  [2, 2, 2, null],
  [3, 2, 3, '3 threads on 2 processors wait for each other: 2 would be faster'],
  [4, 2, 4, '4 threads on 2 processors wait for each other: 2 would be faster'],
  [99, 2, 2, '99 threads on 2 processors: 2 will compute, more would be slower'],
  [2, 1, 2, '2 threads on one processor wait for each other: 1 would be faster'],
  [8, 1, 1, '8 threads on one processor: 1 will compute, more would be slower'],
])('%s on %i processors', (asked, processors, taken, notice) => {
  expect(threadCount(asked, processors)).toBe(taken)
  expect(threadNotice(asked, processors)).toBe(notice)
})
