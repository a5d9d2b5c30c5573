// The matrix kernels of the builds that run here against the reference: every layout, with its tails; many tokens against one
// at a time, and slices against the whole, bit by bit.
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import type { Precision } from '#moeflux/backends/backend.js'
import { floatTypeCode, matmulScratchBytes, type SimdLevel } from '#moeflux/backends/wasm/kernels.js'
import { loadKernels } from '#moeflux/backends/wasm/nodePlatform.js'
import { matVec } from '#moeflux/ops/matmul/reference.js'
import {
  dequantizeRow,
  type PlainWeights,
  type QuantizedWeights,
  unpackRow,
} from '#moeflux/ops/matmul/storedWeights.js'
import { expectClose, expectSameBits, KERNEL } from '../support/ops/bands.js'
import { cosine } from '../support/ops/closeness.js'
import { expectProduct, productSize } from '../support/ops/products.js'
import {
  makeProduct,
  productShapes,
  quantizedActivations,
  runProduct,
  storeMatrix,
  toBf16,
  toF16,
} from '../support/ops/quantizedProducts.js'
import { randomFloats, randomQuantized, seededRandom } from '../support/random.js'
import { rowStride, WasmArena } from '../support/wasm/wasmArena.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 1e-5 }

const { simd: best } = await loadKernels()

describe.each<SimdLevel>([...new Set([best, 'relaxed', 'baseline'] as const)])('matrices, %s SIMD', simd => {
  let arena: WasmArena
  beforeAll(async () => {
    arena = await WasmArena.create(simd)
  })

  test('exact: the reference’s product', () => {
    fc.assert(
      fc.property(productShapes, shape => {
        arena.reset()
        const { weights, x } = makeProduct(shape)
        expectProduct(
          runProduct(arena, 'exact', weights, storeMatrix(arena, weights, shape.half), x),
          weights,
          x,
          KERNEL,
        )
      }),
      { numRuns: 120 },
    )
  })

  test('fast: the product with rounded activations', () => {
    fc.assert(
      fc.property(productShapes, shape => {
        arena.reset()
        const { weights, x } = makeProduct(shape)
        const got = runProduct(arena, 'fast', weights, storeMatrix(arena, weights, shape.half), x)
        expectProduct(got, weights, quantizedActivations(x, shape.group), TIGHT)
        if (got.length >= 16) expect(cosine(got, matVec(weights, x))).toBeGreaterThan(0.999)
      }),
      { numRuns: 120 },
    )
  })

  test.each<Precision>(['fast', 'exact'])('%s: the same bits for one token or many, a slice or all rows', precision => {
    fc.assert(
      fc.property(productShapes, fc.nat(), (shape, cut) => {
        arena.reset()
        const { weights, x } = makeProduct(shape)
        const { rows, cols } = weights
        const { tokens } = shape
        const at = storeMatrix(arena, weights, shape.half)
        const whole = runProduct(arena, precision, weights, at, x)
        for (let t = 0; t < tokens; t++) {
          const one = runProduct(arena, precision, weights, at, x.slice(t * cols, (t + 1) * cols))
          expectSameBits(one, whole.slice(t * rows, (t + 1) * rows), `token ${t}`)
        }
        const begin = cut % (rows + 1)
        const slice = runProduct(arena, precision, weights, at, x, { begin })
        for (let t = 0; t < tokens; t++) {
          expectSameBits(slice.slice(t * rows + begin, (t + 1) * rows), whole.slice(t * rows + begin, (t + 1) * rows))
          expect(slice.subarray(t * rows, t * rows + begin).every(Number.isNaN)).toBe(true)
        }
        const index = Array.from({ length: tokens }, (_, t) => (t * 7 + cut) % tokens)
        const indexed = runProduct(arena, precision, weights, at, x, { index })
        for (let t = 0; t < tokens; t++) {
          const to = (tokens - 1 - t) * rows
          expectSameBits(indexed.slice(to, to + rows), whole.slice(index[t] * rows, (index[t] + 1) * rows))
        }
      }),
      { numRuns: 60 },
    )
  })

  test('fast: zeros and extreme weights at full range', () => {
    for (const bits of [2, 4, 8] as const) {
      for (const group of [32, 64, 128] as const) {
        arena.reset()
        const cols = group * 5
        const weights: QuantizedWeights = {
          ...randomQuantized(seededRandom(bits), 3, cols, bits, group),
          packed: new Uint32Array((3 * cols * bits) / 32).fill(0xffffffff),
        }
        const at = storeMatrix(arena, weights, false)
        // All activations at ±127 steps against the largest weights: no lane may overflow.
        for (const value of [1, -1]) {
          const x = new Float32Array(2 * cols).fill(value)
          expectClose(runProduct(arena, 'fast', weights, at, x), matVec(weights, x), TIGHT)
        }
        expect([...runProduct(arena, 'fast', weights, at, new Float32Array(cols))]).toEqual([0, 0, 0])
      }
    }
  })

  test.each<Precision>(['fast', 'exact'])('%s: NaN and Infinity come through', precision => {
    const weights = randomQuantized(seededRandom(5), 2, 256, 4, 64)
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
      arena.reset()
      const x = randomFloats(seededRandom(6), 256)
      x[77] = bad
      const got = runProduct(arena, precision, weights, storeMatrix(arena, weights, false), x)
      expect(got.some(Number.isFinite)).toBe(false)
    }
  })

  test('plain weights of every type and any width', () => {
    const plainShapes = fc.record({
      type: fc.constantFrom('BF16', 'F16', 'F32'),
      rows: fc.integer({ min: 1, max: 9 }),
      cols: fc.integer({ min: 1, max: 150 }),
      tokens: fc.integer({ min: 1, max: 9 }),
      seed: fc.nat(),
    })
    fc.assert(
      fc.property(plainShapes, ({ type, rows, cols, tokens, seed }) => {
        arena.reset()
        const random = seededRandom(seed)
        // Twelfths of a power of two: exact in every type.
        const values = randomFloats(random, rows * cols).map(v => Math.round(v * 64) / 64)
        const weights: PlainWeights = { kind: 'plain', rows, cols, values }
        const x = randomFloats(random, tokens * cols)
        const narrow = type === 'F32' ? values : Uint16Array.from(values, type === 'F16' ? toF16 : toBf16)
        const w = arena.put(narrow, 2)
        const stride = rowStride(rows)
        const multiply = (input: Float32Array) => {
          const count = input.length / cols
          const out = arena.allocate(count * stride)
          const from = arena.putRows(input, cols, rowStride(cols))
          const code = floatTypeCode[type as 'F32']
          const scratch = arena.allocate(matmulScratchBytes(0))
          arena.kernels.matmulPlain(out, stride, 0, w, code, cols, 0, rows, from, rowStride(cols), 0, count, scratch)
          return arena.readRows(out, count, rows, stride)
        }
        const all = multiply(x)
        expectProduct(all, weights, x, TIGHT)
        for (let t = 0; t < tokens; t++) {
          expectSameBits(multiply(x.slice(t * cols, (t + 1) * cols)), all.slice(t * rows, (t + 1) * rows))
        }
      }),
      { numRuns: 60 },
    )
  })

  test('an embedding row is bit-exact', () => {
    fc.assert(
      fc.property(productShapes, shape => {
        arena.reset()
        const { weights } = makeProduct(shape)
        const { cols, bits, group, rows } = weights
        const at = storeMatrix(arena, weights, shape.half)
        const out = arena.floats(cols)
        arena.kernels.dequantizeRow(out, at.weight, at.scales, at.biases, at.type, bits, group, cols, rows - 1)
        expectSameBits(arena.read(out, cols), dequantizeRow(weights, rows - 1))
        expect(unpackRow(weights, 0, new Float32Array(cols)).length).toBe(cols)
      }),
      { numRuns: 40 },
    )
  })

  test('every half and every bfloat16 becomes the float it is', () => {
    arena.reset()
    const all = Uint16Array.from({ length: 65536 }, (_, i) => i)
    const source = arena.put(all, 2)
    const out = arena.floats(65536)
    arena.kernels.convertFloats(out, source, floatTypeCode.F16, 65536)
    const halves = arena.read(out, 65536)
    for (let i = 0; i < 65536; i++) {
      const exponent = (i >> 10) & 31
      const fraction = i & 1023
      const size =
        exponent === 31
          ? fraction
            ? Number.NaN
            : Number.POSITIVE_INFINITY
          : exponent === 0
            ? fraction * 2 ** -24
            : (1 + fraction / 1024) * 2 ** (exponent - 15)
      if (!Object.is(halves[i], i & 0x8000 ? -size : size)) expect(halves[i], `half ${i}`).toBe(size)
    }
    arena.kernels.convertFloats(out, source, floatTypeCode.BF16, 65536)
    expect(arena.readInts(out, 65536).every((bits, i) => bits === (i << 16) >>> 0)).toBe(true)
  })
})

test('fast products of both builds differ by rounding alone', async () => {
  const builds = [await WasmArena.create('relaxed'), await WasmArena.create('baseline')]
  fc.assert(
    fc.property(productShapes, shape => {
      const { weights, x } = makeProduct(shape)
      const [a, b] = builds.map(arena => {
        arena.reset()
        return runProduct(arena, 'fast', weights, storeMatrix(arena, weights, shape.half), x)
      })
      expectClose(a, b, TIGHT, 'baseline beside relaxed', productSize(weights, x))
    }),
    { numRuns: 60 },
  )
})
