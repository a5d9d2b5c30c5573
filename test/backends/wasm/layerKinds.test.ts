// The wasm backend on models whose layers are of any kinds, against the reference: prompts, single tokens, few slots, many
// memories; the same bits for any cut, number of threads and number of memories.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Backend } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import type { HostedOptions, WasmInternals } from '#moeflux/backends/wasm/platform.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { type RandomFormat, type RandomShape, randomModel } from '../../support/models/randomModel.js'
import { expectClose, expectSameBits, FAST_LOGITS, KERNEL } from '../../support/ops/bands.js'
import { arraysOf, mlpOfSameChoices } from '../../support/ops/layerProbes.js'
import { randomKinds } from '../../support/ops/randomKinds.js'
import { seededRandom } from '../../support/random.js'
import { asyncHost, localHost } from '../../support/wasm/wasmHosts.js'

const LAYERS = ['full_attention', 'linear_attention', 'full_attention'] as const
const sizes = { headDim: 32, experts: 6, k: 2, layers: LAYERS }

const formats: fc.Arbitrary<RandomFormat | null> = fc.constantFrom(
  null,
  { bits: 4, group: 32, scaleType: 'BF16' },
  { bits: 8, group: 64, scaleType: 'F16' },
)
const shapes: fc.Arbitrary<RandomShape> = fc.record({
  hidden: fc.constantFrom(64, 96),
  heads: fc.constant(6),
  kvHeads: fc.constantFrom(2, 3),
  headDim: fc.constant(sizes.headDim),
  keyHeads: fc.constant(2),
  valueHeads: fc.constantFrom(2, 4),
  keyDim: fc.constant(16),
  valueDim: fc.constantFrom(16, 32),
  experts: fc.constant(sizes.experts),
  k: fc.constant(sizes.k),
  intermediate: fc.constantFrom(32, 64),
  sharedIntermediate: fc.constantFrom(32, 96),
  vocab: fc.constant(70),
  tied: fc.boolean(),
  layers: fc.constant(LAYERS),
  kinds: randomKinds(sizes),
  formats: fc.array(formats, { minLength: 1, maxLength: 4 }),
  expertFormats: fc.tuple(formats, formats, formats),
  seed: fc.integer({ min: 1, max: 2 ** 31 }),
})

async function onWasm<T>(
  packed: PackedModel,
  options: Partial<HostedOptions>,
  internals: WasmInternals,
  use: (backend: Backend) => Promise<T>,
): Promise<T> {
  const { expertsPerToken } = packed.config
  const usual = { precision: 'exact', expertsPerToken, wasmHost: asyncHost } as const
  const backend = await openWasmBackend(packed, { ...usual, ...options }, internals)
  try {
    return await use(backend)
  } finally {
    await backend.close()
  }
}

/** Logits at every position of tokens that come in pieces of so many. */
async function logitsOf(backend: Backend, tokens: readonly number[], pieces: readonly number[]): Promise<Float32Array> {
  const sequence = backend.createSequence()
  const logits: number[] = []
  for (let at = 0, piece = 0; at < tokens.length; piece++) {
    const part = tokens.slice(at, at + pieces[piece % pieces.length])
    const phase = part.length === 1 ? 'decode' : 'prompt'
    const [output] = await backend.step([{ sequence, tokens: part, phase, output: 'all' }])
    logits.push(...(output.logits as Float32Array))
    at += part.length
  }
  sequence.release()
  return Float32Array.from(logits)
}

function tokensOf({ seed, vocab }: RandomShape, count = 26): number[] {
  const random = seededRandom(seed)
  return Array.from({ length: count }, () => Math.floor(random() * vocab))
}

describe('layers of any kinds', () => {
  test('are the reference’s, array by array, and choose its experts', async () => {
    const property = fc.asyncProperty(shapes, async shape => {
      const packed = randomModel(shape)
      const tokens = tokensOf(shape)
      const reference = await openReferenceBackend(packed, { precision: 'exact', expertsPerToken: sizes.k })
      await onWasm(packed, { wasmHost: localHost }, {}, async backend => {
        const start = reference.createSequence()
        const { layers, logits } = await reference.probe(start, { tokens })
        const got = await backend.probe(backend.createSequence(), { tokens })
        for (const [i, want] of layers.entries()) {
          const arrays = new Map(arraysOf(got.layers[i]))
          for (const [name, values] of arraysOf(want)) {
            expectClose(arrays.get(name) as Float32Array, values, KERNEL, `${name} of layer ${i}`)
          }
          expect(got.layers[i].routerIndices, `layer ${i}`).toEqual(want.routerIndices)
        }
        expectClose(got.logits as Float32Array, logits as Float32Array, KERNEL, 'logits')
      })
      await reference.close()
    })
    // One seed: among all models there are some with a choice on the very edge.
    await fc.assert(property, { numRuns: 25, seed: 15 })
  })

  test('with int8 activations are near, layer by layer on the same input', async () => {
    const property = fc.asyncProperty(shapes, async shape => {
      const packed = randomModel(shape)
      const reference = await openReferenceBackend(packed, { precision: 'exact', expertsPerToken: sizes.k })
      const { embed, layers } = await reference.probe(reference.createSequence(), { tokens: tokensOf(shape) })
      await onWasm(packed, { wasmHost: localHost, precision: 'fast' }, {}, async backend => {
        const inputs = [embed as Float32Array, ...layers.map(({ out }) => out)]
        for (const [layer, want] of layers.entries()) {
          const probe = await backend.probe(backend.createSequence(), { layer, hidden: inputs[layer] })
          const [got] = probe.layers
          expectClose(got.mixerOut, want.mixerOut, FAST_LOGITS, `mixer of layer ${layer}`)
          const mlp = mlpOfSameChoices(got, want, shape.hidden)
          expectClose(mlp.a, mlp.b, FAST_LOGITS, `feed-forward of layer ${layer}`)
        }
      })
      await reference.close()
    })
    await fc.assert(property, { numRuns: 15, seed: 16 })
  })

  test('have the same bits in any cut, on any number of threads and memories', async () => {
    const property = fc.asyncProperty(shapes, async shape => {
      const packed = randomModel(shape)
      const tokens = tokensOf(shape, 90)
      const simd = 'baseline'
      const whole = await onWasm(packed, { wasmHost: localHost, precision: 'fast' }, {}, backend =>
        logitsOf(backend, tokens, [32]),
      )
      const slot = Math.ceil(packed.experts.layout.expertSize / 4096) * 4096
      const few = packed.config.moeLayers.length > 0 ? { expertMemory: 2 * sizes.k * slot } : {}
      const ways: [Partial<HostedOptions>, WasmInternals, number[]][] = [
        [{ threads: 2 }, { simd }, [90]],
        [{ threads: 3, ...few }, { simd, bankLimit: 2_000_000, chunkTokens: 32 }, [1, 1, 7, 31, 1, 2]],
      ]
      for (const [options, internals, pieces] of ways) {
        await onWasm(packed, { precision: 'fast', ...options }, internals, async backend => {
          expectSameBits(await logitsOf(backend, tokens, pieces), whole)
        })
      }
    })
    await fc.assert(property, { numRuns: 3 })
  })
})
