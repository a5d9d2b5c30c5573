// Products of random blocks (what GGUF files hold), as the kernels of a wasm build compute them.
import fc from 'fast-check'
import { activationBytes, blockActivationBytes, blockScratchBytes } from '#moeflux/backends/wasm/kernels.js'
import { BLOCK_FORMATS, type BlockSpan, blockShift, hasLaneSums, isNibbles } from '#moeflux/model/blockFormats.js'
import { randomFloats, seededRandom } from '../random.js'
import { rowStride, type WasmArena } from '../wasm/wasmArena.js'
import { type RandomBlocks, randomBlocks } from './randomBlocks.js'

interface Place {
  readonly weight: number
  readonly scales: number
}

export function runBlocks(
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

export const blockShapes = fc.record({
  name: fc.constantFrom(...BLOCK_FORMATS.keys()),
  span: fc.constantFrom<BlockSpan>(128, 256),
  units: fc.integer({ min: 1, max: 13 }),
  rows: fc.integer({ min: 1, max: 7 }),
  tokens: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 36 })),
  seed: fc.integer({ min: 1, max: 2 ** 31 }),
})

type BlockShape = typeof blockShapes extends fc.Arbitrary<infer Shape> ? Shape : never

export function makeBlocks({ name, span, units, rows, tokens, seed }: BlockShape): {
  blocks: RandomBlocks
  x: Float32Array
} {
  const format = BLOCK_FORMATS.get(name)!
  const isProduct = format.scale === 'product'
  const cols = isProduct ? span * Math.ceil(units / 2) : 32 * units
  const blocks = randomBlocks(format, isProduct ? span : 0, rows, cols, seed)
  return { blocks, x: randomFloats(seededRandom(seed + 1), tokens * cols) }
}

/** At odd addresses, as parts of an expert may be. */
export function storeBlocks(arena: WasmArena, { weight, scales }: RandomBlocks): Place {
  return { weight: arena.put(weight, 4), scales: arena.put(scales, 1) }
}
