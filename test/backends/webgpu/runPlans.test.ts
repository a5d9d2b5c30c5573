// Which rows decode together: every token once, in order, no batch too large, no run twice in one.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeBatches } from '#moeflux/backends/webgpu/runPlans.js'

test('a run stays whole where it has room, and goes on in the next batch where not', () => {
  expect(decodeBatches([1, 4, 2], 8, 8)).toEqual([
    [
      { run: 0, first: 0, count: 1 },
      { run: 1, first: 0, count: 4 },
      { run: 2, first: 0, count: 2 },
    ],
  ])
  expect(decodeBatches([3, 4], 4, 4)).toEqual([[{ run: 0, first: 0, count: 3 }], [{ run: 1, first: 0, count: 4 }]])
  expect(decodeBatches([4], 2, 8)).toEqual([[{ run: 0, first: 0, count: 2 }], [{ run: 0, first: 2, count: 2 }]])
})

test('any runs: all tokens in order, in batches that have room', () => {
  const counts = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 12 })
  const limit = fc.integer({ min: 1, max: 8 })
  fc.assert(
    fc.property(counts, limit, limit, (runs, most, longest) => {
      const done = runs.map(() => 0)
      for (const batch of decodeBatches(runs, most, longest)) {
        expect(batch.length).toBeGreaterThan(0)
        expect(batch.reduce((sum, { count }) => sum + count, 0)).toBeLessThanOrEqual(most)
        expect(new Set(batch.map(({ run }) => run)).size).toBe(batch.length)
        for (const { run, first, count } of batch) {
          expect(first).toBe(done[run])
          expect(count).toBeLessThanOrEqual(longest)
          done[run] += count
        }
      }
      expect(done).toEqual(runs)
    }),
  )
})
