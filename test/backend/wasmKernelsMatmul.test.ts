// The matrix kernels of both SIMD builds against the reference: every layout, with its tails; many tokens against one
// at a time, and slices against the whole, bit by bit.
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import type { Precision } from '#moeflux/compute/backend.js'
import { matVec } from '#moeflux/compute/reference/matVec.js'
import {
  dequantizeRow,
  type PlainWeights,
  type QuantizedWeights,
  unpackRow,
} from '#moeflux/compute/reference/weights.js'
import { activationBytes, floatTypeCode, matmulScratchBytes, type SimdLevel } from '#moeflux/compute/wasm/kernels.js'
import type { QuantBits, QuantGroup } from '#moeflux/model/tensors.js'
import { expectClose, expectSameBits, KERNEL } from '../support/bands.js'
import { cosine } from '../support/closeness.js'
import { expectProduct, productSize } from '../support/products.js'
import { randomFloats, randomQuantized, seededRandom } from '../support/random.js'
import { rowStride, WasmArena } from '../support/wasmArena.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 1e-5 }

interface Shape {
  bits: QuantBits
  group: QuantGroup
  groups: number
  rows: number
  tokens: number
  half: boolean
  seed: number
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  bits: fc.constantFrom<QuantBits>(2, 4, 8),
  group: fc.constantFrom<QuantGroup>(32, 64, 128),
  groups: fc.integer({ min: 1, max: 13 }),
  rows: fc.integer({ min: 1, max: 11 }),
  tokens: fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 36 })),
  half: fc.boolean(),
  seed: fc.integer({ min: 1, max: 2 ** 31 }),
})

interface Stored {
  weight: number
  scales: number
  biases: number
  type: number
}

/** The matrix as it lies on disk, at odd addresses as parts of an expert may be. */
function store(arena: WasmArena, weights: QuantizedWeights, half: boolean): Stored {
  const narrow = (values: Float32Array) => Uint16Array.from(values, half ? toF16 : toBf16)
  return {
    weight: arena.put(weights.packed, 4),
    scales: arena.put(narrow(weights.scales), 2),
    biases: arena.put(narrow(weights.biases), 6),
    type: floatTypeCode[half ? 'F16' : 'BF16'],
  }
}

const scratch = new DataView(new ArrayBuffer(4))

function toBf16(value: number): number {
  scratch.setFloat32(0, value)
  return scratch.getUint16(0)
}

/** For normal values that are exact in F16. */
function toF16(value: number): number {
  scratch.setFloat32(0, value)
  const bits = scratch.getUint32(0)
  if ((bits & 0x7fffffff) === 0) return bits >>> 16
  return ((bits >>> 16) & 0x8000) | (((bits >>> 13) & 0x3ffff) - (112 << 10))
}

function run(
  arena: WasmArena,
  precision: Precision,
  weights: QuantizedWeights,
  at: Stored,
  x: Float32Array,
  options: { begin?: number; end?: number; index?: readonly number[] } = {},
): Float32Array {
  const { rows, cols, bits, group } = weights
  const { kernels } = arena
  const { begin = 0, end = rows, index } = options
  const tokens = index?.length ?? x.length / cols
  const inputs = x.length / cols
  const record = activationBytes(cols, bits, group, precision)
  const activations = arena.allocate(record * inputs)
  const rowsIn = arena.putRows(x, cols, rowStride(cols))
  const prepare = precision === 'fast' ? kernels.prepareFast : kernels.prepareExact
  const matmul = precision === 'fast' ? kernels.matmulFast : kernels.matmulExact
  const half = inputs >> 1
  prepare(activations, record, rowsIn, rowStride(cols), cols, bits, group, 0, half)
  prepare(activations, record, rowsIn, rowStride(cols), cols, bits, group, half, inputs)
  const stride = rowStride(rows)
  const out = arena.putRows(new Float32Array(tokens * rows).fill(Number.NaN), rows, stride)
  // Token t of the output takes input index[t] and goes to row tokens - 1 - t.
  const actIndex = index ? arena.put(Uint32Array.from(index)) : 0
  const outIndex = index ? arena.put(Uint32Array.from(index.keys(), t => tokens - 1 - t)) : 0
  matmul(
    ...([out, stride, outIndex, at.weight, at.scales, at.biases, at.type, bits, group, cols, begin, end] as const),
    ...([activations, record, actIndex, tokens, arena.allocate(matmulScratchBytes(record))] as const),
  )
  return arena.readRows(out, tokens, rows, stride)
}

/** What int8 activations mean: the nearest (half to even) of 255 steps up to the group's maximum, in float32. */
function quantizedActivations(x: Float32Array, group: number): Float32Array {
  const out = new Float32Array(x.length)
  for (let start = 0; start < x.length; start += group) {
    const high = x.subarray(start, start + group).reduce((a, b) => Math.max(a, Math.abs(b)), 0)
    const inverse = Math.fround(127 / high)
    for (let i = start; i < start + group; i++) out[i] = (halfToEven(Math.fround(x[i] * inverse)) * high) / 127
  }
  return out
}

function halfToEven(value: number): number {
  return value + 1.5 * 2 ** 52 - 1.5 * 2 ** 52
}

function make({ bits, group, groups, rows, tokens, seed }: Shape): { weights: QuantizedWeights; x: Float32Array } {
  const random = seededRandom(seed)
  const cols = groups * group
  return { weights: randomQuantized(random, rows, cols, bits, group), x: randomFloats(random, tokens * cols) }
}

describe.each<SimdLevel>(['relaxed', 'baseline'])('matrices, %s SIMD', simd => {
  let arena: WasmArena
  beforeAll(async () => {
    arena = await WasmArena.create(simd)
  })

  test('exact: the reference’s product', () => {
    fc.assert(
      fc.property(shapes, shape => {
        arena.reset()
        const { weights, x } = make(shape)
        expectProduct(run(arena, 'exact', weights, store(arena, weights, shape.half), x), weights, x, KERNEL)
      }),
      { numRuns: 120 },
    )
  })

  test('fast: the product with rounded activations', () => {
    fc.assert(
      fc.property(shapes, shape => {
        arena.reset()
        const { weights, x } = make(shape)
        const got = run(arena, 'fast', weights, store(arena, weights, shape.half), x)
        expectProduct(got, weights, quantizedActivations(x, shape.group), TIGHT)
        if (got.length >= 16) expect(cosine(got, matVec(weights, x))).toBeGreaterThan(0.999)
      }),
      { numRuns: 120 },
    )
  })

  test.each<Precision>(['fast', 'exact'])('%s: the same bits for one token or many, a slice or all rows', precision => {
    fc.assert(
      fc.property(shapes, fc.nat(), (shape, cut) => {
        arena.reset()
        const { weights, x } = make(shape)
        const { rows, cols } = weights
        const { tokens } = shape
        const at = store(arena, weights, shape.half)
        const whole = run(arena, precision, weights, at, x)
        for (let t = 0; t < tokens; t++) {
          const one = run(arena, precision, weights, at, x.slice(t * cols, (t + 1) * cols))
          expectSameBits(one, whole.slice(t * rows, (t + 1) * rows), `token ${t}`)
        }
        const begin = cut % (rows + 1)
        const slice = run(arena, precision, weights, at, x, { begin })
        for (let t = 0; t < tokens; t++) {
          expectSameBits(slice.slice(t * rows + begin, (t + 1) * rows), whole.slice(t * rows + begin, (t + 1) * rows))
          expect(slice.subarray(t * rows, t * rows + begin).every(Number.isNaN)).toBe(true)
        }
        const index = Array.from({ length: tokens }, (_, t) => (t * 7 + cut) % tokens)
        const indexed = run(arena, precision, weights, at, x, { index })
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
        const at = store(arena, weights, false)
        // All activations at ±127 steps against the largest weights: no lane may overflow.
        for (const value of [1, -1]) {
          const x = new Float32Array(2 * cols).fill(value)
          expectClose(run(arena, 'fast', weights, at, x), matVec(weights, x), TIGHT)
        }
        expect([...run(arena, 'fast', weights, at, new Float32Array(cols))]).toEqual([0, 0, 0])
      }
    }
  })

  test.each<Precision>(['fast', 'exact'])('%s: NaN and Infinity come through', precision => {
    const weights = randomQuantized(seededRandom(5), 2, 256, 4, 64)
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY]) {
      arena.reset()
      const x = randomFloats(seededRandom(6), 256)
      x[77] = bad
      const got = run(arena, precision, weights, store(arena, weights, false), x)
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
      fc.property(shapes, shape => {
        arena.reset()
        const { weights } = make(shape)
        const { cols, bits, group, rows } = weights
        const at = store(arena, weights, shape.half)
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
    fc.property(shapes, shape => {
      const { weights, x } = make(shape)
      const [a, b] = builds.map(arena => {
        arena.reset()
        return run(arena, 'fast', weights, store(arena, weights, shape.half), x)
      })
      expectClose(a, b, TIGHT, 'baseline beside relaxed', productSize(weights, x))
    }),
    { numRuns: 60 },
  )
})
