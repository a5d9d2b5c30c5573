// The build with dot products computes what that of relaxed SIMD does, to the bit, on any processor: where it has no such
// instruction, the engine makes it of others. On x86, V8 11 (Node 20) does so wrongly before it optimizes, which is why that build
// is not taken there: here it optimizes at once, which is a flag of a whole process.
import { execFileSync } from 'node:child_process'
import { setFlagsFromString } from 'node:v8'
import fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { expectSameBits } from '../../support/ops/bands.js'
import { blockShapes, makeBlocks, runBlocks, storeBlocks } from '../../support/ops/blockProducts.js'
import { makeProduct, productShapes, runProduct, storeMatrix } from '../../support/ops/quantizedProducts.js'
import { WasmArena } from '../../support/wasm/wasmArena.js'

const kernels = import.meta.resolve('#moeflux/backends/wasm/nodePlatform.js')
const isV8Of11 = process.versions.v8.startsWith('11.')

let arenas: readonly WasmArena[]
beforeAll(async () => {
  if (isV8Of11) setFlagsFromString('--no-liftoff')
  arenas = await Promise.all([WasmArena.create('relaxed'), WasmArena.create('dot-product')])
})

test('fast products are those of relaxed SIMD, to the bit', () => {
  fc.assert(
    fc.property(productShapes, fc.boolean(), (shape, isFull) => {
      const { weights, x } = makeProduct(shape)
      // The largest codes times the largest inputs: no lane may overflow.
      if (isFull) {
        weights.packed.fill(0xffffffff)
        x.fill(shape.seed % 2 === 0 ? 1 : -1)
      }
      const [want, got] = arenas.map(arena => {
        arena.reset()
        return runProduct(arena, 'fast', weights, storeMatrix(arena, weights, shape.half), x)
      })
      expectSameBits(got, want)
    }),
    { numRuns: 300 },
  )
})

test('so are those of blocks', () => {
  fc.assert(
    fc.property(blockShapes, fc.boolean(), (shape, isFull) => {
      const { blocks, x } = makeBlocks(shape)
      if (isFull) {
        blocks.weight.fill(blocks.format.bits === 8 ? (blocks.format.offset === 32 ? 63 : 31) : 0xff)
        x.fill(shape.seed % 2 === 0 ? 1 : -1)
      }
      const [want, got] = arenas.map(arena => {
        arena.reset()
        return runBlocks(arena, 'fast', blocks, storeBlocks(arena, blocks), x)
      })
      expectSameBits(got, want)
    }),
    { numRuns: 300 },
  )
})

// Without that flag, as users start it.
test('it is taken where the instruction is right from the start, and not where it is wrong', () => {
  const script = `
    const { loadKernels } = await import(${JSON.stringify(kernels)})
    console.log((await loadKernels()).simd)`
  const simd = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' }).trim()
  if (process.arch === 'arm64') expect(simd).toBe('dot-product')
  else if (isV8Of11) expect(simd).toBe('relaxed')
  else expect(['dot-product', 'relaxed']).toContain(simd) // as the processor is
})
