// The webgpu backend on models whose layers are of any kinds, on SwiftShader: random ones against the reference, and what
// interrupts a step in models with dense layers, biases, windows and sinks, or without any experts.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend, BackendOptions, StepRun } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import { openWebgpuBackend } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import type { WebgpuBackend } from '#moeflux/backends/webgpu/webgpuBackend.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import {
  type Activation,
  type AttentionShape,
  type LayerShape,
  type RouterShape,
  SOFTMAX_ROUTER,
} from '#moeflux/model/layers.js'
import { type FaultRow, faultModel, faultRows } from '../../support/faults/faultBackends.js'
import { faultWalk } from '../../support/faults/faultWalk.js'
import { type RandomFormat, type RandomShape, randomModel } from '../../support/models/randomModel.js'
import { expectClose, expectSameBits, FAST_LOGITS, KERNEL } from '../../support/ops/bands.js'
import { arraysOf, mlpOfSameChoices } from '../../support/ops/layerProbes.js'
import { randomKinds } from '../../support/ops/randomKinds.js'
import { seededRandom } from '../../support/random.js'
import '../../support/gpu/swiftShader.js'

/** More models, others: MOEFLUX_KINDS=50, MOEFLUX_KINDS_SEED=7. */
const { MOEFLUX_KINDS = '2', MOEFLUX_KINDS_SEED = '15' } = process.env
const timeout = 120_000 * Number(MOEFLUX_KINDS)
const LAYERS = ['full_attention', 'linear_attention', 'full_attention'] as const
const sizes = { headDim: 32, experts: 6, k: 2, layers: LAYERS }
const q4: RandomFormat = { bits: 4, group: 32, scaleType: 'BF16' }
const q8: RandomFormat = { bits: 8, group: 64, scaleType: 'F16' }
const common = {
  ...{ hidden: 64, heads: 6, kvHeads: 2, keyHeads: 2, valueHeads: 4, keyDim: 16, valueDim: 32 },
  ...{ intermediate: 32, sharedIntermediate: 32, vocab: 70, tied: false },
}

describe('layers of any kinds', () => {
  const shapes: fc.Arbitrary<RandomShape> = fc
    .record({
      kinds: randomKinds(sizes),
      formats: fc.constantFrom([q4], [null], [q8]),
      expertFormats: fc.constantFrom([q4, q4, q4] as const, [q4, null, q8] as const),
      seed: fc.integer({ min: 1, max: 2 ** 31 }),
    })
    .map(drawn => ({ ...common, ...sizes, ...drawn }))

  test('are the reference’s, array by array; single tokens with few experts in slots', { timeout }, async () => {
    const property = fc.asyncProperty(shapes, async shape => {
      const packed = randomModel(shape)
      const random = seededRandom(shape.seed)
      const tokens = Array.from({ length: 30 }, () => Math.floor(random() * shape.vocab))
      await onBoth(packed, {}, async (reference, backend) => {
        const want = await reference.probe(reference.createSequence(), { tokens })
        const got = await backend.probe(backend.createSequence(), { tokens })
        for (const [i, layer] of want.layers.entries()) {
          const arrays = new Map(arraysOf(got.layers[i]))
          for (const [name, values] of arraysOf(layer)) {
            expectClose(arrays.get(name) as Float32Array, values, KERNEL, `${name} of layer ${i}`)
          }
          expect(got.layers[i].routerIndices, `layer ${i}`).toEqual(layer.routerIndices)
        }
        expectClose(got.logits as Float32Array, want.logits as Float32Array, KERNEL, 'logits')
        const wanted = await logitsOf(reference, tokens.slice(0, 22), tokens.slice(22))
        const logits = await logitsOf(backend, tokens.slice(0, 22), tokens.slice(22))
        for (const [i, row] of logits.entries()) expectClose(row, wanted[i], KERNEL, `token ${i}`)
      })
    })
    // One seed: among all models there are some with a choice on the very edge.
    await fc.assert(property, { numRuns: Number(MOEFLUX_KINDS), seed: Number(MOEFLUX_KINDS_SEED) })
  })

  test('with int8 activations are near, layer by layer on the same input', { timeout }, async () => {
    const property = fc.asyncProperty(shapes, async shape => {
      const packed = randomModel({ ...shape, formats: [q4], expertFormats: [q4, q4, q4] })
      const random = seededRandom(shape.seed)
      const tokens = Array.from({ length: 16 }, () => Math.floor(random() * shape.vocab))
      await onBoth(packed, { precision: 'fast' }, async (reference, backend) => {
        const { embed, layers } = await reference.probe(reference.createSequence(), { tokens })
        const inputs = [embed as Float32Array, ...layers.map(({ out }) => out)]
        for (const [layer, want] of layers.entries()) {
          const probe = await backend.probe(backend.createSequence(), { layer, hidden: inputs[layer] })
          const [got] = probe.layers
          expectClose(got.mixerOut, want.mixerOut, FAST_LOGITS, `mixer of layer ${layer}`)
          const mlp = mlpOfSameChoices(got, want, shape.hidden)
          expectClose(mlp.a, mlp.b, FAST_LOGITS, `feed-forward of layer ${layer}`)
        }
      })
    })
    await fc.assert(property, { numRuns: Number(MOEFLUX_KINDS) / 2, seed: Number(MOEFLUX_KINDS_SEED) })
  })
})

// As gpt_oss and glm4_moe have them, in one model: a dense layer first, windows and sinks, biases wherever there can be some.
const attention: AttentionShape = {
  kind: 'full_attention',
  ...{ outputGate: false, qkNorm: false, qkvBias: true, outputBias: true, window: 5, sinks: true },
  rope: { dims: 32, theta: 1e4, yarn: null },
}
const silu: Activation = { kind: 'silu' }
const clamped: Activation = { kind: 'clampedSwiglu', limit: 1.5, alpha: 1.702 }
const dense: LayerShape['feedForward'] = { kind: 'dense', width: 96, activation: silu }
const sigmoidRouter: RouterShape = {
  ...{ score: 'sigmoid', order: 'scoreThenTop', bias: true, selectionBias: true },
  ...{ groups: { count: 2, used: 1 }, renormalize: true, scale: 1.8 },
}
const topRouter: RouterShape = { ...SOFTMAX_ROUTER, order: 'topThenSoftmax', bias: true }
const moe = (router: RouterShape): LayerShape['feedForward'] => ({
  ...{ kind: 'moe', router, shared: 'none', activation: clamped, expertBias: true },
})
const q4Only = { formats: [q4], expertFormats: [q4, q4, q4] as const, seed: 3, headDim: 32 }

test('experts with biases behind a dense layer, on the GPU and in memory, on a bad disk', { timeout }, async () => {
  const layers = ['full_attention', 'full_attention', 'full_attention'] as const
  const kinds: LayerShape[] = [
    { mixer: attention, feedForward: dense },
    { mixer: { ...attention, window: null }, feedForward: moe(sigmoidRouter) },
    { mixer: attention, feedForward: moe(topRouter) },
  ]
  const model = await faultModel({ ...common, ...q4Only, experts: 10, k: 2, layers, kinds })
  const row = faultRows.find(({ name }) => name === 'webgpu and memory') as FaultRow
  const { backend, disk } = await row.open(model.packed, 6)
  const oracle = await openReferenceBackend(model.packed, { precision: 'exact', expertsPerToken: 2 })
  const walk = { backend, disk, oracle, seed: 1, steps: 24, tolerance: KERNEL.maxDifference }
  const report = await faultWalk(walk)
  const { tiers } = backend.stats()
  await Promise.all([backend.close(), oracle.close(), model.close()])
  expect(report.problem).toBeNull()
  expect(report.faults).toBeGreaterThan(2)
  expect(report.failures).toBeGreaterThan(0)
  expect(tiers?.computedOnCpu).toBeGreaterThan(0)
  expect(tiers?.computedOnGpu).toBeGreaterThan(0)
})

describe('a model without experts', () => {
  const layers = ['linear_attention', 'full_attention'] as const
  const kinds: LayerShape[] = [
    { mixer: { kind: 'linear_attention' }, feedForward: dense },
    { mixer: { ...attention, outputGate: true, window: null }, feedForward: { ...dense, width: 32 } },
  ]
  let backend: WebgpuBackend
  beforeAll(async () => {
    const packed = randomModel({ ...common, ...q4Only, experts: 1, k: 1, layers, kinds })
    expect(packed.config.moeLayers).toEqual([])
    const planned = { tokens: 1, sequences: 1, isContext: false }
    const options = { precision: 'exact', expertsPerToken: 0, planned } as const
    backend = await openWebgpuBackend(packed, options, { chunkTokens: 8 })
  }, timeout)
  afterAll(() => backend?.close())

  const step = async (run: Pick<StepRun, 'sequence' | 'tokens' | 'phase'>, signal?: AbortSignal) =>
    (await backend.step([{ ...run, output: 'last' }], { signal, routing: true }))[0]

  test('has nothing to route, to read or to keep', async () => {
    const sequence = backend.createSequence()
    const { routing, logits } = await step({ sequence, tokens: [1, 2, 3], phase: 'prompt' })
    expect([routing?.length, logits?.every(Number.isFinite)]).toEqual([0, true])
    expect((await step({ sequence, tokens: [4], phase: 'decode' })).routing?.length).toBe(0)
    expect(backend.residency().length).toBe(0)
    expect(backend.stats()).toMatchObject({
      expertSlots: 0,
      expertMemory: 0,
      bytesRead: 0,
      tiers: null,
      decodeTokens: 1,
    })
    sequence.release()
  })

  test('a step that is aborted at any submission changes nothing', async () => {
    const { queue } = backend.device
    for (const run of [
      { tokens: [5, 6, 7, 8, 9], phase: 'prompt' },
      { tokens: [5], phase: 'decode' },
    ] as const) {
      const sequence = backend.createSequence()
      await step({ sequence, tokens: [1, 2, 3], phase: 'prompt' })
      const held = await sequence.hold()
      const want = (await step({ sequence, ...run })).logits as Float32Array
      await sequence.restore(held)
      let aborts = 0
      for (let at = 1; ; at++) {
        const controller = new AbortController()
        let submissions = 0
        queue.submit = commands => {
          if (++submissions === at) controller.abort(new Error('enough'))
          Object.getPrototypeOf(queue).submit.call(queue, commands)
        }
        const outcome = await step({ sequence, ...run }, controller.signal).catch((error: Error) => error)
        Reflect.deleteProperty(queue, 'submit')
        if (submissions < at) break
        if (outcome instanceof Error) {
          aborts++
          expect([outcome.message, sequence.length]).toEqual(['enough', 3])
        } else await sequence.restore(held) // it came too late
      }
      expect(aborts).toBeGreaterThan(0)
      await sequence.restore(held)
      expectSameBits((await step({ sequence, ...run })).logits as Float32Array, want)
      held.release()
      sequence.release()
    }
  })

  test('memory that is refused while its states grow: an error, and nothing has changed', async () => {
    const { device } = backend
    const { createBuffer } = Object.getPrototypeOf(device) as GPUDevice
    const prompt = { tokens: [1, 2, 3], phase: 'prompt' } as const
    const sequences = [backend.createSequence()]
    const want = (await step({ sequence: sequences[0], ...prompt })).logits as Float32Array
    let refusals = 0
    while (sequences.length < 9) {
      const sequence = backend.createSequence()
      device.createBuffer = given => createBuffer.call(device, { ...given, size: device.limits.maxBufferSize + 4 })
      const outcome = await step({ sequence, ...prompt }).catch((error: Error) => error)
      Reflect.deleteProperty(device, 'createBuffer')
      if (outcome instanceof Error) {
        refusals++
        expect(outcome).toMatchObject({ code: 'OUT_OF_MEMORY' })
        expect(sequence.length).toBe(0)
        expectSameBits((await step({ sequence, ...prompt })).logits as Float32Array, want)
      } else expectSameBits(outcome.logits as Float32Array, want)
      sequences.push(sequence)
    }
    expect(refusals).toBeGreaterThan(0)
    for (const sequence of sequences) sequence.release()
  })
})

/** Few slots where there are experts at all. */
async function onBoth(
  packed: PackedModel,
  options: Partial<BackendOptions>,
  use: (reference: Backend, backend: Backend) => Promise<void>,
): Promise<void> {
  const { expertsPerToken, moeLayers } = packed.config
  const given = { precision: 'exact', expertsPerToken, ...options } as const
  const reference = await openReferenceBackend(packed, given)
  const { expertSize } = packed.experts.layout
  const few = moeLayers.length > 0 ? { expertMemory: 5 * expertsPerToken * (expertSize + 64) } : {}
  const backend = await openWebgpuBackend(
    packed,
    { ...given, ...few },
    { chunkTokens: 16, tuning: { AHEAD: 2, TRUST: 0 } },
  )
  try {
    await use(reference, backend)
  } finally {
    await backend.close()
    await reference.close()
  }
}

/** Logits after a prompt that comes in two pieces, then after each of some single tokens. */
async function logitsOf(backend: Backend, prompt: readonly number[], more: readonly number[]): Promise<Float32Array[]> {
  const sequence = backend.createSequence()
  const runs: Pick<StepRun, 'tokens' | 'phase'>[] = [
    { tokens: prompt.slice(0, 9), phase: 'prompt' },
    { tokens: prompt.slice(9), phase: 'prompt' },
    ...more.map(token => ({ tokens: [token], phase: 'decode' as const })),
  ]
  const logits: Float32Array[] = []
  for (const run of runs)
    logits.push((await backend.step([{ sequence, ...run, output: 'last' }]))[0].logits as Float32Array)
  sequence.release()
  return logits
}
