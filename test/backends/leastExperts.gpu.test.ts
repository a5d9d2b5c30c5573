// The least memory for experts that an error names is one that works, and it is the least: on every backend, for models
// of any shape.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Backend } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import type { HostedOptions, WasmHost } from '#moeflux/backends/wasm/platform.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { openWebgpuBackend } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import { OptionError } from '#moeflux/base/errors.js'
import { startAsyncReaders } from '#moeflux/experts/readers/asyncReaders.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { openModel } from '#moeflux/index.js'
import { demoModel, packTiny } from '../support/models/models.js'
import { temporaryFolder, tinySource } from '../support/models/packedFiles.js'
import { type RandomFormat, type RandomShape, randomModel } from '../support/models/randomModel.js'
import { expectClose, KERNEL } from '../support/ops/bands.js'
import '../support/gpu/swiftShader.js'

const format = fc.option(
  fc.record({
    bits: fc.constantFrom(2 as const, 4 as const, 8 as const),
    group: fc.constantFrom(32 as const, 64 as const),
    scaleType: fc.constantFrom('BF16' as const, 'F16' as const),
  }),
) as fc.Arbitrary<RandomFormat | null>

const shapes: fc.Arbitrary<RandomShape> = fc
  .record({
    hidden: fc.constantFrom(32, 96, 128),
    heads: fc.constant(3),
    kvHeads: fc.constantFrom(1, 3),
    headDim: fc.constant(32),
    keyHeads: fc.constant(1),
    valueHeads: fc.constant(3),
    keyDim: fc.constant(16),
    valueDim: fc.constant(32),
    experts: fc.constantFrom(1, 5, 9, 33),
    k: fc.constantFrom(1, 3, 7),
    intermediate: fc.constantFrom(32, 64, 160),
    sharedIntermediate: fc.constantFrom(32, 64),
    vocab: fc.constant(50),
    tied: fc.boolean(),
    layers: fc.constantFrom(['linear_attention', 'full_attention'] as const, ['full_attention'] as const),
    formats: fc.array(format, { minLength: 1, maxLength: 4 }),
    expertFormats: fc.tuple(format, format, format),
    seed: fc.integer({ min: 1, max: 2 ** 31 }),
  })
  .map(shape => ({ ...shape, k: Math.min(shape.k, shape.experts) }))

type Open = (packed: PackedModel, options: HostedOptions) => Promise<Backend>

/** Files that exist in memory alone have readers on the event loop. */
const wasmHost: WasmHost = {
  ...nodeHost(),
  startReaders: request => startAsyncReaders({ ...request, shared: true }),
}

const rows: readonly { name: string; open: Open; runs: number }[] = [
  { name: 'reference', open: openReferenceBackend, runs: 25 },
  { name: 'wasm', open: (packed, options) => openWasmBackend(packed, { ...options, threads: 1, wasmHost }), runs: 12 },
  { name: 'webgpu', open: (packed, options) => openWebgpuBackend(packed, options, { chunkTokens: 16 }), runs: 1 },
]

async function logitsOf(backend: Backend): Promise<Float32Array[]> {
  const sequence = backend.createSequence()
  const prompt = { sequence, tokens: [3, 14, 15, 9, 2, 6, 5, 35], phase: 'prompt', output: 'last' } as const
  const decode = { sequence, tokens: [8], phase: 'decode', output: 'last' } as const
  const logits = [(await backend.step([prompt]))[0].logits, (await backend.step([decode]))[0].logits]
  sequence.release()
  await backend.close()
  return logits as Float32Array[]
}

/** What the error says that it wants. */
async function namedLeast(opened: Promise<unknown>): Promise<number> {
  const error = await opened.then(
    () => null,
    error => error,
  )
  expect(error).toBeInstanceOf(OptionError)
  expect(error.option).toBe('expertMemory')
  return Number(/^at least (\d+) bytes/.exec(error.want)?.[1])
}

describe('the least memory for experts', () => {
  test.each(rows)('of random models on $name', { timeout: 240_000 }, async ({ open, runs }) => {
    const property = fc.asyncProperty(shapes, async shape => {
      const packed = randomModel(shape)
      const options: HostedOptions = { precision: 'exact', expertsPerToken: shape.k }
      const least = await namedLeast(open(packed, { ...options, expertMemory: 1 }))
      expect(await namedLeast(open(packed, { ...options, expertMemory: least - 1 }))).toBe(least)
      const got = await logitsOf(await open(packed, { ...options, expertMemory: least }))
      const want = await logitsOf(await openReferenceBackend(packed, options))
      for (const [i, logits] of got.entries()) expectClose(logits, want[i], KERNEL, `logits ${i}`)
    })
    await fc.assert(property, { numRuns: runs })
  })

  test('of real models, as a user gives it', async () => {
    const small = temporaryFolder()
    await packFolder(tinySource, small, { bits: 4 }) // experts that are no multiple of a page
    for (const folder of [demoModel, await packTiny(), small]) {
      for (const backend of ['reference', 'wasm'] as const) {
        const least = await namedLeast(openModel(folder, { backend, expertMemory: '1KB' }))
        const model = await openModel(folder, { backend, expertMemory: String(least) })
        const context = model.createContext()
        expect((await context.evalPrompt([1, 2, 3]))?.every(Number.isFinite)).toBe(true)
        await model.close()
      }
    }
  })
})
