// The reference kernels against formulas written out by hand. Everything else is tested against the reference.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { joinFloats } from '#moeflux/model/floats.js'
import { ropeFrequencies } from '#moeflux/model/ropeFrequencies.js'
import { attention } from '#moeflux/ops/attention/reference.js'
import { conv1d } from '#moeflux/ops/conv1d/reference.js'
import { embed } from '#moeflux/ops/embed/reference.js'
import { deltaGates, gatedDelta } from '#moeflux/ops/gatedDelta/reference.js'
import { matVec } from '#moeflux/ops/matmul/reference.js'
import { dequantizeRow, type PlainWeights, unpackRow } from '#moeflux/ops/matmul/storedWeights.js'
import { combine, expert } from '#moeflux/ops/moe/reference.js'
import { l2Norm, rmsNorm, rmsNormGated } from '#moeflux/ops/norm/reference.js'
import { rope } from '#moeflux/ops/rope/reference.js'
import { router } from '#moeflux/ops/router/reference.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'
import { randomFloats, randomQuantized, seededRandom } from '../support/random.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 1e-5 }
const seeds = fc.integer({ min: 1, max: 2 ** 31 })
const floats = (...values: number[]) => Float32Array.from(values)
const plain = (rows: number, cols: number, values: Float32Array): PlainWeights => ({
  kind: 'plain',
  rows,
  cols,
  values,
})

describe('quantized matrices', () => {
  test('element i of a word is at bits i * bits, from the low bits up', () => {
    const random = seededRandom(1)
    const weights = { ...randomQuantized(random, 1, 32, 4, 32), packed: Uint32Array.of(0x87654321, 0xf0, 0, 0x12) }
    const q = unpackRow(weights, 0, new Float32Array(32))
    expect([...q]).toEqual([
      1,
      2,
      3,
      4,
      5,
      6,
      7,
      8,
      0,
      15,
      0,
      0,
      0,
      0,
      0,
      0,
      ...Array(8).fill(0),
      2,
      1,
      0,
      0,
      0,
      0,
      0,
      0,
    ])
  })

  test('matVec equals dequantize-then-multiply, for all bits, floats, groups and token counts', () => {
    const shapes = fc.record({
      bits: fc.constantFrom(2, 4, 8),
      group: fc.constantFrom(32, 64, 128),
      groups: fc.integer({ min: 1, max: 3 }),
      rows: fc.integer({ min: 1, max: 9 }),
      tokens: fc.integer({ min: 0, max: 4 }),
      seed: seeds,
    })
    fc.assert(
      fc.property(shapes, ({ bits, group, groups, rows, tokens, seed }) => {
        const random = seededRandom(seed)
        const cols = group * groups
        const quantized = randomQuantized(random, rows, cols, bits as 4, group as 64)
        const values = joinFloats(Array.from({ length: rows }, (_, row) => dequantizeRow(quantized, row)))
        const x = randomFloats(random, tokens * cols)
        const want = new Float32Array(tokens * rows)
        for (let row = 0; row < rows; row++) {
          const w = values.subarray(row * cols, (row + 1) * cols)
          for (let t = 0; t < tokens; t++) {
            want[t * rows + row] = w.reduce((sum, value, i) => sum + value * x[t * cols + i], 0)
          }
        }
        for (const weights of [quantized, plain(rows, cols, values)]) {
          const got = matVec(weights, x)
          got.forEach((value, i) => {
            expect(Math.abs(value - want[i])).toBeLessThan(1e-5)
          })
          for (let t = 0; t < tokens; t++) {
            const alone = matVec(weights, x.subarray(t * cols, (t + 1) * cols))
            expectSameBits(alone, got.slice(t * rows, (t + 1) * rows), 'a token alone')
          }
        }
      }),
      { numRuns: 60 },
    )
  })

  test('embed takes the rows of the tokens', () => {
    const weights = randomQuantized(seededRandom(3), 5, 64, 4, 64)
    const out = embed(weights, [4, 0])
    expectSameBits(out.slice(0, 64), dequantizeRow(weights, 4))
    expectSameBits(out.slice(64), dequantizeRow(weights, 0))
  })
})

describe('norms', () => {
  test('rmsNorm', () => {
    // mean(x²) = 12.5 for (3, 4); eps makes it 16
    expectClose(rmsNorm(floats(3, 4), floats(1, 2), 3.5), floats(0.75, 2), TIGHT)
    expectClose(rmsNorm(floats(3, 4, 3, 4), floats(1, 2), 3.5), floats(0.75, 2, 0.75, 2), TIGHT)
  })

  test('rmsNormGated multiplies with silu(z)', () => {
    const silu2 = 2 / (1 + Math.exp(-2))
    expectClose(rmsNormGated(floats(3, 4), floats(2, 2), floats(1, 2), 3.5), floats(0.75 * silu2, 2 * silu2), TIGHT)
  })

  test('l2Norm', () => {
    expectClose(l2Norm(floats(3, 4, 0, 0), 2, 0.5), floats(0.3, 0.4, 0, 0), TIGHT)
  })
})

describe('full attention', () => {
  test('rope rotates half-split pairs of the first channels only', () => {
    const x = floats(1, 2, 3, 4, 5, 6)
    rope(x, 3, 6, ropeFrequencies({ dims: 4, theta: 100, yarn: null }))
    const [a, b] = [3, 3 * 100 ** -0.5]
    const want = [
      Math.cos(a) - 3 * Math.sin(a),
      2 * Math.cos(b) - 4 * Math.sin(b),
      3 * Math.cos(a) + Math.sin(a),
      4 * Math.cos(b) + 2 * Math.sin(b),
      5,
      6,
    ]
    expectClose(x, want, TIGHT)
  })

  test('rope at position 0 changes nothing', () => {
    const x = floats(1, 2, 3, 4)
    rope(x, 0, 4, ropeFrequencies({ dims: 4, theta: 1e7, yarn: null }))
    expect([...x]).toEqual([1, 2, 3, 4])
  })

  test('attention: softmax of scaled scores, kv heads shared by query heads, pages joined', () => {
    const shape = { heads: 4, kvHeads: 2, headDim: 4 }
    const random = seededRandom(5)
    const length = 7
    const keys = randomFloats(random, length * 8)
    const values = randomFloats(random, length * 8)
    const query = randomFloats(random, 16)
    const want: number[] = []
    for (let head = 0; head < 4; head++) {
      const kv = head >> 1
      const weights = Array.from({ length }, (_, p) => {
        let score = 0
        for (let i = 0; i < 4; i++) score += query[head * 4 + i] * keys[p * 8 + kv * 4 + i]
        return Math.exp(score / 2)
      })
      const total = weights.reduce((a, b) => a + b)
      for (let i = 0; i < 4; i++) {
        want.push(weights.reduce((sum, w, p) => sum + (w / total) * values[p * 8 + kv * 4 + i], 0))
      }
    }
    const whole = attention(query, [keys], [values], length, length, shape)
    expectClose(whole, want, TIGHT)
    const pages = (x: Float32Array) => [x.slice(0, 24), x.slice(24, 48), x.slice(48)]
    expectSameBits(attention(query, pages(keys), pages(values), 3, length, shape), whole)
  })
})

describe('linear attention', () => {
  test('conv1d: taps oldest first, state the last three inputs, any cut gives the same', () => {
    const silu = (x: number) => x / (1 + Math.exp(-x))
    const { out, state } = conv1d(floats(4, 5), floats(1, 2, 3), floats(1, 10, 100, 1000))
    expectClose(out, [silu(4321), silu(5432)], TIGHT)
    expect([...state]).toEqual([3, 4, 5])
    const random = seededRandom(9)
    const x = randomFloats(random, 6 * 3)
    const start = randomFloats(random, 9)
    const taps = randomFloats(random, 12)
    const whole = conv1d(x, start, taps)
    const first = conv1d(x.slice(0, 6), start, taps)
    const second = conv1d(x.slice(6), first.state, taps)
    expectSameBits(whole.out, floats(...first.out, ...second.out))
    expectSameBits(whole.state, second.state)
  })

  test('deltaGates', () => {
    const { decay, beta } = deltaGates(floats(0.5, 30), floats(0, 2), floats(0, -1), floats(0.5, 0))
    expectClose(decay, [Math.exp(-Math.log1p(Math.exp(1))), Math.exp(-Math.exp(-1) * 30)], TIGHT)
    expectClose(beta, [0.5, 1 / (1 + Math.exp(-2))], TIGHT)
  })

  test('gatedDelta: the written recurrence, two value heads on one key head', () => {
    const shape = { keyHeads: 1, valueHeads: 2, keyDim: 2, valueDim: 1 }
    const state = floats(1, 2, 3, 4)
    const input = {
      q: floats(1, -1),
      k: floats(0.5, 0.25),
      v: floats(2, 3),
      decay: floats(0.5, 1),
      beta: floats(1, 0.5),
    }
    // head 0: S = [.5, 1], mem = .5, d = 1.5 -> S = [1.25, 1.375]; head 1: mem = 2.5, d = .25 -> S = [3.125, 4.0625]
    expectClose(gatedDelta(input, state, shape), [-0.125, -0.9375], TIGHT)
    expectClose(state, [1.25, 1.375, 3.125, 4.0625], TIGHT)
  })
})

describe('experts', () => {
  test('router: highest first, the lower index wins ties, weights sum to one', () => {
    const { indices, weights } = router(floats(1, 3, 3, 0, 5, 5, 5, 5), 4, 2)
    expect([...indices]).toEqual([1, 2, 0, 1])
    expectClose(weights, [0.5, 0.5, 0.5, 0.5], TIGHT)
    const one = router(floats(0, Math.log(3), -50), 3, 2)
    expect([...one.indices]).toEqual([1, 0])
    expectClose(one.weights, [0.75, 0.25], TIGHT)
    expect([...router(floats(1, 9), 2, 1).weights]).toEqual([1])
  })

  test('router: a logit that is not finite does not vanish because its expert is not chosen', () => {
    for (const wrong of [Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]) {
      expect([...router(floats(1, wrong, 3, 0, 5, 6, 7, 8), 4, 2).weights].map(Number.isFinite)).toEqual([
        false,
        false,
        true,
        true,
      ])
    }
  })

  test('expert: down(silu(gate(x)) * up(x))', () => {
    const weights = {
      gate: plain(2, 1, floats(1, 2)),
      up: plain(2, 1, floats(3, 4)),
      down: plain(1, 2, floats(10, 100)),
    }
    const silu = (x: number) => x / (1 + Math.exp(-x))
    expectClose(expert(weights, floats(1)), [10 * silu(1) * 3 + 100 * silu(2) * 4], TIGHT)
  })

  test('combine: weighted experts and the gated shared one', () => {
    expectClose(combine(floats(1, 2, 10, 20), floats(0.25, 0.75), floats(5, 6), floats(0.5), 1), [10.25, 18.5], TIGHT)
  })
})
