// Products of weights in blocks, on the builds that run here: every format with its tails against plain arithmetic on its values; many
// tokens against one at a time, and slices against the whole, bit by bit.
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { blockScratchBytes, type SimdLevel } from '#moeflux/backends/wasm/kernels.js'
import { loadKernels } from '#moeflux/backends/wasm/nodePlatform.js'
import { BLOCK_FORMATS, dequantizeBlocks } from '#moeflux/model/blockFormats.js'
import { matVec } from '#moeflux/ops/matmul/reference.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'
import { blockShapes, makeBlocks, runBlocks, storeBlocks } from '../support/ops/blockProducts.js'
import { expectProduct } from '../support/ops/products.js'
import { quantizedActivations } from '../support/ops/quantizedProducts.js'
import { randomBlocks } from '../support/ops/randomBlocks.js'
import { randomFloats, seededRandom } from '../support/random.js'
import { WasmArena } from '../support/wasm/wasmArena.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 2e-5 }

const { simd: best } = await loadKernels()

describe.each<SimdLevel>([...new Set([best, 'relaxed', 'baseline'] as const)])('%s', simd => {
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
      fc.property(blockShapes, shape => {
        arena.reset()
        const { blocks, x } = makeBlocks(shape)
        const { format, cols } = blocks
        const { rows, tokens } = shape
        const at = storeBlocks(arena, blocks)
        const plain = { kind: 'plain', rows, cols, values: blocks.values } as const
        for (const precision of ['fast', 'exact'] as const) {
          const all = runBlocks(arena, precision, blocks, at, x)
          const inputs = precision === 'fast' ? quantizedActivations(x, format.group) : x
          expectProduct(all, plain, inputs, TIGHT)
          const slices = runBlocks(arena, precision, blocks, at, x, { end: rows >> 1 })
          const rest = runBlocks(arena, precision, blocks, at, x, { begin: rows >> 1 })
          for (let i = 0; i < all.length; i++) if (i % rows >= rows >> 1) slices[i] = rest[i]
          expectSameBits(slices, all)
          const last = runBlocks(arena, precision, blocks, at, x, { index: [tokens - 1] })
          expectSameBits(last, all.subarray((tokens - 1) * rows))
          const turned = runBlocks(arena, precision, blocks, at, x, { index: [...Array(tokens).keys()].reverse() })
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
        expectClose(runBlocks(arena, 'fast', blocks, at, x), want, TIGHT)
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
      const out = runBlocks(arena, 'fast', blocks, at, x)
      expect([...out.subarray(0, 2)].every(Number.isNaN), format.name).toBe(true)
      expect([...out.subarray(2)].every(Number.isFinite), format.name).toBe(true)
    }
  })
})
