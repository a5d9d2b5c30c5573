// Traces of routing: written, read back, joined, and replayed against a cache.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { FormatError } from '#moeflux/base/errors.js'
import { decodeTrace, encodeTrace, type RoutingTrace, unionOf } from '#moeflux/lab/traces/routingTrace.js'
import { simulateTrace } from '#moeflux/lab/traces/simulateTrace.js'

const shape = { layers: 2, experts: 16, expertsPerToken: 2, expertBytes: 64 }
const engine = { backend: 'wasm', policy: 'lrfu', slots: 8, hits: 3, misses: 5, computeSecondsPerToken: 0.01 }

const trace: fc.Arbitrary<RoutingTrace> = fc
  .array(
    fc.integer({ min: 1, max: 6 }).chain(tokens =>
      fc.record({
        tokens: fc.constant(tokens),
        experts: fc
          .array(fc.uniqueArray(fc.nat(15), { minLength: 2, maxLength: 2 }), {
            minLength: 2 * tokens,
            maxLength: 2 * tokens,
          })
          .map(sets => Uint16Array.from(sets.flat())),
      }),
    ),
    { minLength: 1, maxLength: 20 },
  )
  .map(steps => ({ model: 'demo', ...shape, engine, steps }))

describe('routing trace', () => {
  test('is read back as it was written', () => {
    fc.assert(
      fc.property(trace, original => {
        expect(decodeTrace(encodeTrace(original), 'x')).toEqual(original)
      }),
    )
  })

  test('keeps the ids of tokens where it is given them', () => {
    const engine = { backend: 'wasm', policy: 'lrfu', slots: 8, hits: 1, misses: 1, computeSecondsPerToken: 0.01 }
    const facts = { model: 'm', layers: 1, experts: 8, expertsPerToken: 1, expertBytes: 10, engine }
    const steps = [
      { tokens: 3, experts: Uint16Array.of(1, 2, 3), ids: Uint32Array.of(7, 100_000, 9) },
      { tokens: 1, experts: Uint16Array.of(4), ids: Uint32Array.of(11) },
    ]
    const bytes = encodeTrace({ ...facts, steps })
    expect(decodeTrace(bytes, 'x')).toEqual({ ...facts, steps })
    expect(() => decodeTrace(bytes.subarray(0, -4), 'x')).toThrow('has 20 bytes of routing, want 24')
  })

  test('keeps what experts counted for, with and without ids, and refuses weights that are none', () => {
    const facts = { model: 'm', layers: 1, experts: 8, expertsPerToken: 2, expertBytes: 10, engine }
    const step = { tokens: 2, experts: Uint16Array.of(1, 2, 3, 4), weights: Float32Array.of(0.75, 0.25, 0.5, 0.5) }
    for (const more of [{}, { ids: Uint32Array.of(7, 8) }]) {
      const trace = { ...facts, steps: [{ ...step, ...more }] }
      const bytes = encodeTrace(trace)
      expect(decodeTrace(bytes, 'x')).toEqual(trace)
      expect(simulateTrace(decodeTrace(bytes, 'x'), 'lrfu', 4)).toEqual(simulateTrace(trace, 'lrfu', 4))
      expect(() => decodeTrace(bytes.subarray(0, -4), 'x')).toThrow('bytes of routing')
      new Float32Array(trace.steps[0].weights.buffer)[3] = Number.NaN
      expect(() => decodeTrace(encodeTrace(trace), 'x')).toThrow('a weight that is none')
      trace.steps[0].weights[3] = 0.5
    }
  })

  test('refuses other files, cut ones and impossible experts by name', () => {
    const good = encodeTrace({
      model: 'demo',
      ...shape,
      engine,
      steps: [{ tokens: 1, experts: Uint16Array.of(1, 2, 3, 4) }],
    })
    expect(() => decodeTrace(good.subarray(0, good.length - 1), 'x.trace')).toThrow(FormatError)
    expect(() => decodeTrace(good.subarray(0, good.length - 1), 'x.trace')).toThrow('has 7 bytes of routing, want 8')
    const foreign = good.slice()
    foreign[foreign.length - 1] = 255
    expect(() => decodeTrace(foreign, 'x.trace')).toThrow('past the last of 16')
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), bytes => {
        expect(() => decodeTrace(bytes, 'x.trace')).toThrow(FormatError)
      }),
    )
  })

  test('refuses facts that no simulation could use', () => {
    const steps = [{ tokens: 1, experts: Uint16Array.of(1, 2, 3, 4) }]
    const good = { model: 'demo', ...shape, engine, steps }
    const broken: object[] = [
      { engine: undefined },
      { engine: { ...engine, slots: -1 } },
      { engine: { ...engine, slots: 1e15 } },
      { engine: { ...engine, computeSecondsPerToken: null } },
      { model: 5 },
      { experts: 2 ** 40 },
      { layers: 2 ** 30, experts: 65_535, steps: [] },
      { expertsPerToken: 99 },
      { steps: [] },
    ]
    for (const facts of broken) {
      const bytes = encodeTrace({ ...good, ...facts })
      expect(() => decodeTrace(bytes, 'x.trace'), JSON.stringify(facts)).toThrow(FormatError)
    }
  })
})

describe('simulation', () => {
  test('counts every wanted expert once per step and layer, and misses each at least once', () => {
    fc.assert(
      fc.property(
        trace,
        fc.constantFrom('lru' as const, 'lrfu' as const),
        fc.integer({ min: 4, max: 32 }),
        (each, policy, slots) => {
          const result = simulateTrace(each, policy, slots)
          const wanted = each.steps.flatMap(step => [unionOf(step, 0, 2), unionOf(step, 1, 2)])
          expect(result.hits + result.misses).toBe(wanted.reduce((sum, set) => sum + set.length, 0))
          const distinct = new Set(wanted.flatMap((set, i) => set.map(expert => `${i % 2}:${expert}`)))
          expect(result.misses).toBeGreaterThanOrEqual(distinct.size)
          if (slots === 32) expect(result.misses).toBe(distinct.size)
        },
      ),
    )
  })
})
