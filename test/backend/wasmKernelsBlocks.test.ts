// Products of weights in blocks, on both SIMD builds: every format with its tails against plain arithmetic on its values; many
// tokens against one at a time, and slices against the whole, bit by bit.
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { matVec } from '#moeflux/compute/reference/matVec.js'
import {
  activationBytes,
  blockActivationBytes,
  blockScratchBytes,
  type SimdLevel,
} from '#moeflux/compute/wasm/kernels.js'
import {
  BLOCK_FORMATS,
  type BlockSpan,
  blockShift,
  dequantizeBlocks,
  hasLaneSums,
  isNibbles,
} from '#moeflux/model/blockFormats.js'
import { expectClose, expectSameBits } from '../support/bands.js'
import { expectProduct } from '../support/products.js'
import { randomFloats, seededRandom } from '../support/random.js'
import { type RandomBlocks, randomBlocks } from '../support/randomBlocks.js'
import { rowStride, WasmArena } from '../support/wasmArena.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 2e-5 }

interface Place {
  readonly weight: number
  readonly scales: number
}

function run(
  arena: WasmArena,
  precision: 'fast' | 'exact',
  { format, span, rows, cols }: RandomBlocks,
  at: Place,
  x: Float32Array,
  { begin = 0, end = rows, index }: { begin?: number; end?: number; index?: readonly number[] } = {},
): Float32Array {
  const { kernels } = arena
  const inputs = x.length / cols
  const tokens = index?.length ?? inputs
  const rowsIn = arena.putRows(x, cols, rowStride(cols))
  const stride = rowStride(rows)
  const out = arena.putRows(new Float32Array(tokens * rows).fill(Number.NaN), rows, stride)
  const inIndex = index ? arena.put(Uint32Array.from(index)) : 0
  const outIndex = index ? arena.put(Uint32Array.from(index.keys(), t => tokens - 1 - t)) : 0
  const scratch = arena.allocate(blockScratchBytes(cols))
  const common = [out, stride, outIndex, at.weight, at.scales, format.kernel, span, cols, begin, end] as const
  if (precision === 'exact') {
    const record = isNibbles(format) ? activationBytes(cols, 4, 32, 'exact') : rowStride(cols)
    const records = isNibbles(format) ? arena.allocate(record * inputs) : rowsIn
    if (isNibbles(format)) kernels.prepareExact(records, record, rowsIn, rowStride(cols), cols, 4, 32, 0, inputs)
    kernels.matmulBlocksExact(...common, records, record, inIndex, tokens, scratch)
  } else {
    const record = blockActivationBytes(cols, format.group)
    const records = arena.allocate(record * inputs)
    const { bits, group } = format
    const args = [
      records,
      record,
      rowsIn,
      rowStride(cols),
      cols,
      bits,
      group,
      blockShift(format),
      hasLaneSums(format),
    ] as const
    kernels.prepareBlocks(...args, 0, inputs >> 1)
    kernels.prepareBlocks(...args, inputs >> 1, inputs)
    kernels.matmulBlocks(...common, records, record, inIndex, tokens, scratch)
  }
  return arena.readRows(out, tokens, rows, stride)
}

/** What int8 activations mean: the nearest (half to even) of 255 steps up to the group's maximum, in float32. */
function quantizedActivations(x: Float32Array, group: number): Float32Array {
  const out = new Float32Array(x.length)
  for (let start = 0; start < x.length; start += group) {
    const high = x.subarray(start, start + group).reduce((a, b) => Math.max(a, Math.abs(b)), 0)
    const inverse = Math.fround(127 / high)
    const nearest = (value: number) => value + 1.5 * 2 ** 52 - 1.5 * 2 ** 52
    for (let i = start; i < start + group; i++) out[i] = (nearest(Math.fround(x[i] * inverse)) * high) / 127
  }
  return out
}

const shapes = fc.record({
  name: fc.constantFrom(...BLOCK_FORMATS.keys()),
  span: fc.constantFrom<BlockSpan>(128, 256),
  units: fc.integer({ min: 1, max: 13 }),
  rows: fc.integer({ min: 1, max: 7 }),
  tokens: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 36 })),
  seed: fc.integer({ min: 1, max: 2 ** 31 }),
})

describe.each(['relaxed', 'baseline'] as const)('%s', (simd: SimdLevel) => {
  let arena: WasmArena
  beforeAll(async () => {
    arena = await WasmArena.create(simd)
  })

  test('rows as floats, to the bit', () => {
    for (const format of BLOCK_FORMATS.values()) {
      for (const span of format.scale === 'product' ? ([128, 256] as const) : ([0] as const)) {
        arena.reset()
        const blocks = randomBlocks(format, span, 3, format.scale === 'product' ? 512 : 352, 7)
        const weight = arena.put(blocks.weight, 4)
        const scales = arena.put(blocks.scales, 1)
        for (let row = 0; row < 3; row++) {
          const out = arena.put(new Float32Array(blocks.cols))
          const scratch = arena.allocate(blockScratchBytes(blocks.cols))
          arena.kernels.dequantizeBlocks(out, weight, scales, format.kernel, span, blocks.cols, row, scratch)
          const want = blocks.values.subarray(row * blocks.cols, (row + 1) * blocks.cols)
          expectSameBits(arena.readRows(out, 1, blocks.cols, blocks.cols * 4), want, `${format.name} ${span} ${row}`)
        }
      }
    }
  })

  test('the smallest and largest powers of two', () => {
    arena.reset()
    const format = BLOCK_FORMATS.get('mxfp4')!
    const weight = arena.put(new Uint8Array(64).fill(0x11))
    const scales = arena.put(Uint8Array.of(0, 1, 2, 255))
    const out = arena.put(new Float32Array(128))
    const scratch = arena.allocate(blockScratchBytes(128))
    arena.kernels.dequantizeBlocks(out, weight, scales, format.kernel, 0, 128, 0, scratch)
    const values = arena.readRows(out, 1, 128, 512)
    expect([0, 32, 64, 96].map(i => values[i])).toEqual([2 ** -128, 2 ** -127, 2 ** -126, 2 ** 127])
  })

  test('products of random shapes', () => {
    fc.assert(
      fc.property(shapes, ({ name, span, units, rows, tokens, seed }) => {
        arena.reset()
        const format = BLOCK_FORMATS.get(name)!
        const isProduct = format.scale === 'product'
        const cols = isProduct ? span * Math.ceil(units / 2) : 32 * units
        const blocks = randomBlocks(format, isProduct ? span : 0, rows, cols, seed)
        const at = { weight: arena.put(blocks.weight, 4), scales: arena.put(blocks.scales, 1) }
        const x = randomFloats(seededRandom(seed + 1), tokens * cols)
        const plain = { kind: 'plain', rows, cols, values: blocks.values } as const
        for (const precision of ['fast', 'exact'] as const) {
          const all = run(arena, precision, blocks, at, x)
          const inputs = precision === 'fast' ? quantizedActivations(x, format.group) : x
          expectProduct(all, plain, inputs, TIGHT)
          const slices = run(arena, precision, blocks, at, x, { end: rows >> 1 })
          const rest = run(arena, precision, blocks, at, x, { begin: rows >> 1 })
          for (let i = 0; i < all.length; i++) if (i % rows >= rows >> 1) slices[i] = rest[i]
          expectSameBits(slices, all)
          const last = run(arena, precision, blocks, at, x, { index: [tokens - 1] })
          expectSameBits(last, all.subarray((tokens - 1) * rows))
          const turned = run(arena, precision, blocks, at, x, { index: [...Array(tokens).keys()].reverse() })
          expectSameBits(turned, all)
        }
      }),
      { numRuns: 60 },
    )
  })

  test('the largest codes times the largest inputs do not overflow', () => {
    for (const format of BLOCK_FORMATS.values()) {
      for (const tokens of [1, 2, 8]) {
        arena.reset()
        const span = format.scale === 'product' ? 256 : 0
        const { scales } = randomBlocks(format, span, 1, 256, 11)
        const largest = format.bits === 8 ? (format.offset === 32 ? 63 : 31) : 2 ** format.bits - 1
        const code = format.name === 'mxfp4' ? 7 : largest
        const weight = new Uint8Array((256 * format.bits) / 8).fill((code * 255) / (2 ** format.bits - 1))
        const values = new Float32Array(256)
        dequantizeBlocks(format, span, weight, scales, values)
        const at = { weight: arena.put(weight), scales: arena.put(scales) }
        const blocks = { format, span, rows: 1, cols: 256, weight, scales, values } as const
        const x = new Float32Array(tokens * 256).fill(-1)
        const want = matVec({ kind: 'plain', rows: 1, cols: 256, values }, x)
        expectClose(run(arena, 'fast', blocks, at, x), want, TIGHT)
      }
    }
  })

  test('what is not finite in an input comes out', () => {
    for (const format of BLOCK_FORMATS.values()) {
      arena.reset()
      const blocks = randomBlocks(format, format.scale === 'product' ? 256 : 0, 2, 256, 3)
      const at = { weight: arena.put(blocks.weight), scales: arena.put(blocks.scales) }
      const x = randomFloats(seededRandom(5), 2 * 256)
      x[77] = Number.NaN
      const out = run(arena, 'fast', blocks, at, x)
      expect([...out.subarray(0, 2)].every(Number.isNaN), format.name).toBe(true)
      expect([...out.subarray(2)].every(Number.isFinite), format.name).toBe(true)
    }
  })
})
