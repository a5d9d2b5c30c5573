// Kinds of layers that other families have, on the reference: random shapes against definitions written another way.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { RouterShape } from '#moeflux/model/layers.js'
import { ropeFrequencies } from '#moeflux/model/ropeFrequencies.js'
import { swiGlu } from '#moeflux/ops/activation/reference.js'
import { attention } from '#moeflux/ops/attention/reference.js'
import { router } from '#moeflux/ops/router/reference.js'
import { expectClose } from '../support/ops/bands.js'
import { randomFloats, seededRandom } from '../support/random.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 1e-5 }

const routers = fc.record({
  score: fc.constantFrom('softmax' as const, 'sigmoid' as const),
  order: fc.constantFrom('scoreThenTop' as const, 'topThenSoftmax' as const),
  selectionBias: fc.boolean(),
  groupCount: fc.constantFrom(1, 2, 4),
  renormalize: fc.boolean(),
  scale: fc.constantFrom(1, 2.5),
  seed: fc.nat(),
})

test('routers: scores, groups, biases, weights', () => {
  const [experts, k, tokens] = [16, 3, 4]
  fc.assert(
    fc.property(routers, ({ score, order, selectionBias, groupCount, renormalize, scale, seed }) => {
      const isTopFirst = order === 'topThenSoftmax'
      const random = seededRandom(seed)
      const groups = groupCount === 1 ? null : { count: groupCount, used: Math.ceil(groupCount / 2) }
      const shape: RouterShape = {
        ...{ order, renormalize, scale, groups, bias: false, selectionBias: selectionBias && !isTopFirst },
        score: isTopFirst ? 'softmax' : score,
      }
      const logits = randomFloats(random, tokens * experts, 2)
      const bias = shape.selectionBias ? randomFloats(random, experts, 0.5) : null
      const { indices, weights } = router(logits, experts, k, shape, bias)
      for (let t = 0; t < tokens; t++) {
        const got = new Map([...indices.subarray(t * k, (t + 1) * k)].map((expert, i) => [expert, weights[t * k + i]]))
        const want = routed([...logits.subarray(t * experts, (t + 1) * experts)], k, shape, bias)
        expect([...got.keys()].sort()).toEqual([...want.keys()].sort())
        for (const [expert, weight] of want) expect(got.get(expert)).toBeCloseTo(weight, 6)
      }
    }),
    { numRuns: 300 },
  )
})

/** Expert to weight, of one token. */
function routed(logits: number[], k: number, shape: RouterShape, bias: Float32Array | null): Map<number, number> {
  const softmax = (values: number[]) => {
    const sum = values.reduce((total, value) => total + Math.exp(value), 0)
    return values.map(value => Math.exp(value) / sum)
  }
  const scores = shape.score === 'sigmoid' ? logits.map(x => 1 / (1 + Math.exp(-x))) : softmax(logits)
  let wanted = scores.map((score, expert) => ({ expert, value: score + (bias?.[expert] ?? 0) }))
  if (shape.groups !== null) {
    const size = logits.length / shape.groups.count
    const groups = Array.from({ length: shape.groups.count }, (_, g) => wanted.slice(g * size, (g + 1) * size))
    const best = (group: typeof wanted) => [...group].sort((a, b) => b.value - a.value)
    const sum = (group: typeof wanted) => best(group)[0].value + best(group)[1].value
    wanted = groups
      .sort((a, b) => sum(b) - sum(a))
      .slice(0, shape.groups.used)
      .flat()
  }
  const chosen = wanted.sort((a, b) => b.value - a.value).slice(0, k)
  const total = chosen.reduce((sum, { expert }) => sum + scores[expert], 0)
  const divisor = shape.renormalize || shape.order === 'topThenSoftmax' ? total : 1
  return new Map(chosen.map(({ expert }) => [expert, (scores[expert] / divisor) * shape.scale]))
}

test('attention within a window and with sinks is attention over those rows, with one more that has no value', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 12 }), fc.nat(), (length, window, seed) => {
      const random = seededRandom(seed)
      const shape = { heads: 4, kvHeads: 2, headDim: 8 }
      const query = randomFloats(random, 32, 2)
      const [keys, values] = [randomFloats(random, length * 16, 2), randomFloats(random, length * 16, 2)]
      const sinks = randomFloats(random, 4, 2)
      const first = Math.max(0, length - window)
      const seen = (rows: Float32Array) => [rows.slice(first * 16)]
      const cut = attention(query, seen(keys), seen(values), length, length - first, shape)
      expectClose(attention(query, [keys], [values], length, length, { ...shape, window }), cut, TIGHT)
      const got = attention(query, [keys], [values], length, length, { ...shape, window }, sinks)
      for (let head = 0; head < 4; head++) {
        let [sum, at] = [0, (head >> 1) * 8]
        for (let row = first; row < length; row++) {
          let score = 0
          for (let i = 0; i < 8; i++) score += query[head * 8 + i] * keys[row * 16 + at + i]
          sum += Math.exp(score / Math.sqrt(8))
        }
        const share = sum / (sum + Math.exp(sinks[head]))
        const want = cut.subarray(head * 8, head * 8 + 8).map(value => value * share)
        expectClose(got.subarray(head * 8, head * 8 + 8), want, TIGHT)
      }
    }),
    { numRuns: 60 },
  )
})

test('a clamped SwiGLU', () => {
  const activation = { kind: 'clampedSwiglu', limit: 7, alpha: 1.702 } as const
  const [gate, up] = [Float32Array.of(9, -9, 1), Float32Array.of(2, -8, 8)]
  const want = [7 * 3, -9 * -6, 8].map((value, i) => value / (1 + Math.exp(-1.702 * Math.min(7, gate[i]))))
  expectClose(swiGlu(gate, up, activation), want, TIGHT)
})

test('YaRN: high frequencies as they are, low ones divided, a ramp between them', () => {
  const yarn = { factor: 32, betaFast: 32, betaSlow: 1, originalContext: 4096, truncate: false, attentionFactor: 1.3 }
  const { frequencies, magnitude } = ropeFrequencies({ dims: 64, theta: 150_000, yarn })
  const plain = ropeFrequencies({ dims: 64, theta: 150_000, yarn: null })
  const at = (beta: number) => (64 * Math.log(4096 / (2 * Math.PI * beta))) / (2 * Math.log(150_000))
  for (const [i, frequency] of frequencies.entries()) {
    const ramp = Math.min(1, Math.max(0, (i - at(32)) / (at(1) - at(32))))
    expect(frequency).toBeCloseTo(plain.frequencies[i] * (1 - ramp + ramp / 32), 12)
  }
  expect(magnitude).toBe(1.3)
  const whole = ropeFrequencies({ dims: 64, theta: 150_000, yarn: { ...yarn, truncate: true } })
  expect(whole.frequencies[Math.floor(at(32))]).toBe(plain.frequencies[Math.floor(at(32))])
  expect(whole.frequencies[Math.ceil(at(1))]).toBeCloseTo(plain.frequencies[Math.ceil(at(1))] / 32, 15)
})
