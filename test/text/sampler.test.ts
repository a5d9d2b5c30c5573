// The sampler against plain code: filters in their order, seeds, penalties, log-probabilities.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { argmax, topTokens } from '#moeflux/text/sampling/logitScan.js'
import { Sampler, type SamplerOptions, tokenLogprobs } from '#moeflux/text/sampling/sampler.js'
import { processorMs } from '../support/processorMs.js'

const logits = (...values: number[]) => Float32Array.from(values)

function softmax(values: Float32Array, temperature: number): number[] {
  const best = Math.max(...values)
  const weights = [...values].map(value => Math.exp((value - best) / temperature))
  const total = weights.reduce((a, b) => a + b, 0)
  return weights.map(weight => weight / total)
}

/** The plain definition: sort everything, then cut. */
function keptTokens(
  values: Float32Array,
  { temperature = 1, topK = 0, topP = 1, minP = 0 }: SamplerOptions,
): Set<number> {
  const probabilities = softmax(values, temperature)
  let order = [...values.keys()].sort((a, b) => values[b] - values[a] || a - b)
  if (topK > 0) order = order.slice(0, topK)
  const total = order.reduce((sum, token) => sum + probabilities[token], 0)
  let covered = 0
  order = order.filter((token, index) => {
    const keep = index === 0 || covered < topP * total
    covered += probabilities[token]
    return keep
  })
  return new Set(order.filter(token => probabilities[token] >= minP * probabilities[order[0]] * (1 - 1e-12)))
}

describe('sampling', () => {
  test('is greedy at temperature 0, lowest index first', () => {
    expect(new Sampler({ temperature: 0 }).sample(logits(1, 3, 3, 2))).toBe(1)
    expect(new Sampler({ temperature: 0 }).sample(logits(Number.NaN, -Infinity, -5, Number.NaN))).toBe(2)
    expect(new Sampler({ temperature: 0 }).sample(logits(1, Infinity, 3))).toBe(1)
    // One over the smallest temperatures is no number.
    for (const cut of [{}, { topK: 2 }, { topP: 0.5 }, { minP: 0.1 }]) {
      expect(new Sampler({ ...cut, temperature: Number.MIN_VALUE }).sample(logits(1, 2, 5, 3))).toBe(2)
    }
  })

  test('only ever draws what top-k, top-p and min-p keep, and draws all of it', () => {
    const setting = fc.record({
      values: fc.array(
        fc.integer({ min: -80, max: 80 }).map(n => n / 16),
        { minLength: 1, maxLength: 24 },
      ),
      topK: fc.constantFrom(0, 1, 2, 5, 100),
      topP: fc.constantFrom(1, 0.95, 0.6, 0.1, 0),
      minP: fc.constantFrom(0, 0.02, 0.5, 1),
      temperature: fc.constantFrom(0.3, 1, 4),
      seed: fc.integer(),
    })
    fc.assert(
      fc.property(setting, ({ values, ...options }) => {
        const given = Float32Array.from(values)
        const sampler = new Sampler(options)
        const kept = keptTokens(given, options)
        for (let i = 0; i < 30; i++) expect(kept).toContain(sampler.sample(given))
      }),
      { numRuns: 300 },
    )
    const drawn = new Set<number>()
    const sampler = new Sampler({ topP: 0.9, seed: 1 })
    const given = logits(1, 1.2, 0.8, -9, 1.1)
    for (let i = 0; i < 200; i++) drawn.add(sampler.sample(given))
    expect(drawn).toEqual(new Set([0, 1, 2, 4]))
  })

  test('finds the best, and what min-p keeps, among numbers of any kind', () => {
    const value = fc.oneof(
      fc.constantFrom(Number.NaN, -Infinity, 0, -0, 1e-42, -1e-42, 3, 3, -3),
      fc.float({ min: -8, max: 8, noNaN: true }),
    )
    const setting = fc.record({
      values: fc.array(value, { minLength: 1, maxLength: 40 }),
      shift: fc.constantFrom(0, 9, -9), // all of them above zero, or below
      count: fc.integer({ min: 1, max: 12 }),
    })
    fc.assert(
      fc.property(setting, ({ values, shift, count }) => {
        // Others lie before and behind.
        const memory = Float32Array.from([99, ...values.map(each => each + shift), 99])
        const given = memory.subarray(1, values.length + 1)
        const order = [...given.keys()].filter(i => given[i] > -Infinity).sort((a, b) => given[b] - given[a] || a - b)
        fc.pre(order.length > 0)
        expect(argmax(given)).toBe(order[0])
        expect([...topTokens(given, count)]).toEqual(order.slice(0, count))
        const minP = 0.3
        const kept = order.filter(i => given[order[0]] - given[i] <= -Math.log(minP))
        expect([...new Sampler({ minP }).weigh(given).tokens].sort((a, b) => a - b)).toEqual(kept.sort((a, b) => a - b))
      }),
      { numRuns: 500 },
    )
  })

  test.each([{ topK: 0 }, { topK: 6 }, { topP: 0.999999 }])('draws with the right frequencies (%j)', options => {
    const given = logits(0, 1, 2, 0.5, -1, 3)
    const expected = softmax(given, 1.5)
    const counts = new Array(6).fill(0)
    const sampler = new Sampler({ temperature: 1.5, seed: 7, ...options })
    for (let i = 0; i < 20_000; i++) counts[sampler.sample(given)]++
    for (let token = 0; token < 6; token++) expect(counts[token] / 20_000).toBeCloseTo(expected[token], 1.7)
  })

  test('repeats itself for a seed and not without', () => {
    const given = new Float32Array(1000).fill(1)
    const run = (seed?: number) => {
      const sampler = new Sampler({ seed })
      return Array.from({ length: 20 }, () => sampler.sample(given)).join()
    }
    expect(run(1)).toBe(run(1))
    for (const seed of [0, 2, -1, 2 ** 53, 0.5]) expect(run(seed)).not.toBe(run(1))
    expect(run()).not.toBe(run())
  })

  test('leaves the given logits alone', () => {
    const given = logits(1, 2, 3)
    new Sampler({ repetitionPenalty: 2, logitBias: new Map([[0, 9]]) }).sample(given, Uint32Array.of(3))
    expect([...given]).toEqual([1, 2, 3])
  })

  test('penalizes repetition in prompt and answer as transformers does', () => {
    const sampler = new Sampler({ temperature: 0, repetitionPenalty: 2 })
    sampler.seePrompt([0, 0, 3])
    expect(sampler.sample(logits(3, 2, 1.9, -1))).toBe(1) // 1.5, 2, 1.9, -2
    expect(sampler.sample(logits(3, 2, 1.9, -1))).toBe(2)
  })

  test('penalizes presence and frequency in the answer', () => {
    const presence = new Sampler({ temperature: 0, presencePenalty: 1 })
    expect([1, 2, 3].map(() => presence.sample(logits(3, 2.5)))).toEqual([0, 1, 0])
    const frequency = new Sampler({ temperature: 0, frequencyPenalty: 0.4 })
    expect([1, 2, 3, 4].map(() => frequency.sample(logits(3, 2.5)))).toEqual([0, 0, 1, 0])
  })

  test('takes biases and masks', () => {
    expect(
      new Sampler({
        temperature: 0,
        logitBias: new Map([
          [2, 100],
          [99, 5],
        ]),
      }).sample(logits(3, 2, 1)),
    ).toBe(2)
    const mask = new Uint32Array(2)
    mask[1] = 1 << 3
    for (const options of [{ temperature: 0 }, { topK: 5 }, { topP: 0.5 }, {}]) {
      expect(new Sampler(options).sample(new Float32Array(64), mask)).toBe(35)
    }
  })

  test('throws where no token can be chosen', () => {
    for (const options of [{ temperature: 0 }, { topK: 2 }, { topP: 0.5 }, {}]) {
      const sampler = new Sampler(options)
      expect(() => sampler.sample(new Float32Array(4).fill(Number.NaN))).toThrow(/no token can be chosen/)
      expect(() => sampler.sample(new Float32Array(4), new Uint32Array(1))).toThrow(/no token can be chosen/)
    }
  })

  test('refuses options outside their range', () => {
    for (const options of [
      { temperature: -1 },
      { temperature: Number.NaN },
      { topK: 1.5 },
      { topP: 1.1 },
      { minP: -0.1 },
      { repetitionPenalty: 0 },
      { seed: Number.POSITIVE_INFINITY },
    ]) {
      expect(() => new Sampler(options)).toThrow(expect.objectContaining({ code: 'BAD_OPTION' }))
    }
  })

  test('is fast for a vocabulary of 248,320', () => {
    const given = Float32Array.from({ length: 248_320 }, (_, i) => Math.sin(i * 12.9898) * 6)
    for (const [options, limit] of [
      [{ topK: 20, topP: 0.9 }, 40],
      [{ topP: 0.95 }, 100],
      [{ temperature: 1 }, 100],
    ] as const) {
      const sampler = new Sampler(options)
      for (let i = 0; i < 5; i++) sampler.sample(given)
      const start = processorMs()
      for (let i = 0; i < 10; i++) sampler.sample(given)
      expect((processorMs() - start) / 10).toBeLessThan(limit)
    }
  })
})

describe('logprobs', () => {
  test('are those of the plain softmax', () => {
    const given = logits(1, 4, 2, -3)
    const expected = softmax(given, 1).map(Math.log)
    const result = tokenLogprobs(given, 2, 3)
    expect(result.token).toBe(2)
    expect(result.logprob).toBeCloseTo(expected[2], 6)
    expect(result.top.map(entry => entry.token)).toEqual([1, 2, 0])
    result.top.forEach(entry => {
      expect(entry.logprob).toBeCloseTo(expected[entry.token], 6)
    })
    expect(tokenLogprobs(given, 2, 0).top).toEqual([])
    expect(argmax(given)).toBe(1)
  })
})
