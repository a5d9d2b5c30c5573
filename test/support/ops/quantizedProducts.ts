// Quantized products of random shapes, as the kernels of a wasm build compute them.
import fc from 'fast-check'
import type { Precision } from '#moeflux/backends/backend.js'
import { activationBytes, floatTypeCode, matmulScratchBytes } from '#moeflux/backends/wasm/kernels.js'
import type { QuantBits, QuantGroup } from '#moeflux/model/tensors.js'
import type { QuantizedWeights } from '#moeflux/ops/matmul/storedWeights.js'
import { randomFloats, randomQuantized, seededRandom } from '../random.js'
import { rowStride, type WasmArena } from '../wasm/wasmArena.js'

interface Shape {
  bits: QuantBits
  group: QuantGroup
  groups: number
  rows: number
  tokens: number
  half: boolean
  seed: number
}

export const productShapes: fc.Arbitrary<Shape> = fc.record({
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
export function storeMatrix(arena: WasmArena, weights: QuantizedWeights, half: boolean): Stored {
  const narrow = (values: Float32Array) => Uint16Array.from(values, half ? toF16 : toBf16)
  return {
    weight: arena.put(weights.packed, 4),
    scales: arena.put(narrow(weights.scales), 2),
    biases: arena.put(narrow(weights.biases), 6),
    type: floatTypeCode[half ? 'F16' : 'BF16'],
  }
}

const scratch = new DataView(new ArrayBuffer(4))

export function toBf16(value: number): number {
  scratch.setFloat32(0, value)
  return scratch.getUint16(0)
}

/** For normal values that are exact in F16. */
export function toF16(value: number): number {
  scratch.setFloat32(0, value)
  const bits = scratch.getUint32(0)
  if ((bits & 0x7fffffff) === 0) return bits >>> 16
  return ((bits >>> 16) & 0x8000) | (((bits >>> 13) & 0x3ffff) - (112 << 10))
}

export function runProduct(
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

export function makeProduct({ bits, group, groups, rows, tokens, seed }: Shape): {
  weights: QuantizedWeights
  x: Float32Array
} {
  const random = seededRandom(seed)
  const cols = groups * group
  return { weights: randomQuantized(random, rows, cols, bits, group), x: randomFloats(random, tokens * cols) }
}

/** What int8 activations mean: the nearest (half to even) of 255 steps up to the group's maximum, in float32. */
export function quantizedActivations(x: Float32Array, group: number): Float32Array {
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
