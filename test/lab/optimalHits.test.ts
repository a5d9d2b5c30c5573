// The best that any policy could reach, against trying everything.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { optimalHits } from '#moeflux/lab/traces/optimalHits.js'
import type { RoutingTrace } from '#moeflux/lab/traces/routingTrace.js'
import { simulateTiers } from '#moeflux/lab/traces/simulateTiers.js'
import { simulateTrace } from '#moeflux/lab/traces/simulateTrace.js'
import { randomTrace } from '../support/models/randomTrace.js'

const anyTrace = fc
  .record({
    layers: fc.integer({ min: 1, max: 4 }),
    experts: fc.integer({ min: 4, max: 12 }),
    expertsPerToken: fc.integer({ min: 1, max: 3 }),
    stepTokens: fc.array(fc.constantFrom(1, 1, 1, 1, 5), { minLength: 1, maxLength: 30 }),
    skew: fc.constantFrom(0, 0.7, 1.5),
    seed: fc.nat(),
  })
  .map(randomTrace)

const tiny = (uses: readonly number[]): RoutingTrace => ({
  ...randomTrace({ layers: 1, experts: 5, expertsPerToken: 1, stepTokens: [], skew: 0, seed: 1 }),
  steps: uses.map(expert => ({ tokens: 1, experts: Uint16Array.of(expert) })),
})

/** All subsets of the intervals between uses: the largest one that never takes more than the slots. */
function bruteForce(uses: readonly number[], slots: number): number {
  const intervals = uses.flatMap((expert, i) => {
    const next = uses.indexOf(expert, i + 1)
    return next < 0 ? [] : [{ from: i, to: next }]
  })
  let most = 0
  for (let subset = 0; subset < 2 ** intervals.length; subset++) {
    const chosen = intervals.filter((_, i) => (subset >> i) % 2 === 1)
    // Between turn t and t + 1.
    const fits = uses.every((_, t) => chosen.filter(({ from, to }) => from <= t && t < to).length <= slots)
    if (fits) most = Math.max(most, chosen.length)
  }
  return most
}

describe('the optimum', () => {
  test('is the largest set of hits that fits', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(4), { minLength: 1, maxLength: 12 }),
        fc.integer({ min: 0, max: 3 }),
        (uses, slots) => {
          const { hits, wanted } = optimalHits(tiny(uses), { slots, from: 'use' })
          expect(hits).toBe(bruteForce(uses, slots))
          expect(wanted).toBe(uses.length)
        },
      ),
      { numRuns: 150 },
    )
  })

  test('is never beaten by a policy, in one tier', () => {
    fc.assert(
      fc.property(anyTrace, fc.integer({ min: 1, max: 30 }), fc.constantFrom('lru', 'lrfu'), (trace, more, policy) => {
        const slots = trace.expertsPerToken + more
        const result = simulateTrace(trace, policy, slots)
        const all = optimalHits(trace, { slots, from: 'use' })
        expect(all.wanted).toBe(result.hits + result.misses)
        expect(result.hits).toBeLessThanOrEqual(all.hits)
        const decode = optimalHits(trace, { slots, from: 'use', decodeOnly: true })
        if (decode.wanted > 0) expect(result.decodeHitRate).toBeLessThanOrEqual(decode.hits / decode.wanted + 1e-12)
      }),
      { numRuns: 150 },
    )
  })

  test('is never beaten by a policy, on the GPU and in memory together', () => {
    const sizes = fc.record({ gpuSlots: fc.nat(20), memorySlots: fc.integer({ min: 6, max: 20 }) })
    const rules = fc.record({
      bytesPerStep: fc.constantFrom(0, 50, 300, 1e6),
      usesToPay: fc.constantFrom(0, 4),
      uploadFromTokens: fc.constantFrom(1, 3, 1e9),
    })
    fc.assert(
      fc.property(anyTrace, sizes, rules, fc.constantFrom('lru', 'lrfu'), (trace, size, rule, policy) => {
        const { all, decode } = simulateTiers(trace, policy, size, rule)
        for (const [counts, decodeOnly] of [
          [all, false],
          [decode, true],
        ] as const) {
          const gpu = optimalHits(trace, { slots: size.gpuSlots, from: 'stepEnd', decodeOnly })
          expect(counts.gpu + counts.memory + counts.disk).toBe(gpu.wanted)
          expect(counts.gpu).toBeLessThanOrEqual(gpu.hits)
          const slots = size.gpuSlots + size.memorySlots
          const both = optimalHits(trace, { slots, from: 'use', decodeOnly })
          expect(counts.gpu + counts.memory).toBeLessThanOrEqual(both.hits)
        }
      }),
      { numRuns: 300 },
    )
  })
})
