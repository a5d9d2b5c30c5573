// What the webgpu backend promises beyond the rows of test/engine, on SwiftShader: random shapes and formats, the portable
// kernels at WebGPU's default limits, experts that stream, a lost device, an adapter that computes nonsense.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend, Precision, SequenceState, StepRun } from '#moeflux/backends/backend.js'
import { PAGE_TOKENS } from '#moeflux/backends/kvPages.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import {
  type KernelKind,
  openWebgpuBackend,
  type WebgpuOptions,
} from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import type { WebgpuBackend } from '#moeflux/backends/webgpu/webgpuBackend.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { openDevice } from '#moeflux/gpu/device/gpuDevice.js'
import { createChecked } from '#moeflux/gpu/device/gpuMemory.js'
import type { LayerShape } from '#moeflux/model/layers.js'
import { faultShape } from '../../support/faults/faultShape.js'
import { GuardedGpu } from '../../support/gpu/guardedGpu.js'
import { ownDevices } from '../../support/gpu/sharedGpu.js'
import { Goldens } from '../../support/models/goldens.js'
import { demoModel, packTiny } from '../../support/models/models.js'
import { type RandomFormat, type RandomShape, randomModel } from '../../support/models/randomModel.js'
import { EXACT_LOGITS, expectClose, expectSameBits, FAST_LOGITS, KERNEL } from '../../support/ops/bands.js'
import { seededRandom } from '../../support/random.js'
import '../../support/gpu/swiftShader.js'

/** Pipelines are compiled on the CPU too: some seconds for each model that is opened, on an idle machine. */
const timeout = 240_000
const portable = { subgroups: false, packedDot: false, defaultLimits: true }

async function openFolder(folder: string): Promise<PackedModel> {
  return openPacked(await openNodeFolder(folder, { links: 'any' }))
}

function open(packed: PackedModel, precision: Precision, gpu: WebgpuOptions, more = {}): Promise<WebgpuBackend> {
  const { expertsPerToken } = packed.config
  return openWebgpuBackend(packed, { precision, expertsPerToken, ...more }, gpu)
}

/** Logits at every position of a prompt, then after each of some single tokens. */
async function logitsOf(backend: Backend, prompt: readonly number[], more: readonly number[]): Promise<Float32Array[]> {
  const sequence = backend.createSequence()
  const run: StepRun = { sequence, tokens: prompt, phase: 'prompt', output: 'all' }
  const logits = [(await backend.step([run]))[0].logits as Float32Array]
  for (const token of more) {
    const step: StepRun = { sequence, tokens: [token], phase: 'decode', output: 'last' }
    logits.push((await backend.step([step]))[0].logits as Float32Array)
  }
  sequence.release()
  return logits
}

function bestOf(logits: Float32Array): number {
  return logits.indexOf(logits.reduce((best, value) => Math.max(best, value)))
}

/** What experts count for: those of a prompt, then those of a single token. */
async function weightsOf(backend: Backend, prompt: readonly number[], token: number): Promise<Float32Array[]> {
  const sequence = backend.createSequence()
  const runs: StepRun[] = [
    { sequence, tokens: prompt, phase: 'prompt', output: 'none' },
    { sequence, tokens: [token], phase: 'decode', output: 'none' },
  ]
  const weights: Float32Array[] = []
  for (const run of runs) {
    const [{ routerWeights }] = await backend.step([run], { routing: 'weights' })
    weights.push(routerWeights as Float32Array)
  }
  sequence.release()
  return weights
}

describe('random models against the reference', () => {
  const formats = fc.record({
    bits: fc.constantFrom(2 as const, 4 as const, 8 as const),
    group: fc.constantFrom(32 as const, 64 as const, 128 as const),
    scaleType: fc.constantFrom('BF16' as const, 'F16' as const),
  })
  const maybe = fc.option(formats, { freq: 5 }) as fc.Arbitrary<RandomFormat | null>
  const shapes: fc.Arbitrary<RandomShape> = fc.record({
    hidden: fc.constantFrom(32, 96, 128),
    heads: fc.constantFrom(3, 6),
    kvHeads: fc.constantFrom(1, 3),
    headDim: fc.constantFrom(32, 64),
    keyHeads: fc.constantFrom(1, 3),
    valueHeads: fc.constantFrom(3, 6),
    keyDim: fc.constantFrom(16, 32),
    valueDim: fc.constantFrom(32, 64),
    experts: fc.constantFrom(1, 5, 9),
    k: fc.constantFrom(1, 3),
    intermediate: fc.constantFrom(32, 64),
    sharedIntermediate: fc.constantFrom(32, 64),
    vocab: fc.constantFrom(50, 133),
    tied: fc.boolean(),
    layers: fc.constantFrom(['linear_attention', 'full_attention'] as const),
    formats: fc.array(maybe, { minLength: 1, maxLength: 4 }),
    expertFormats: fc.tuple(maybe, maybe, maybe),
    seed: fc.integer({ min: 1, max: 2 ** 31 }),
  })

  test('prompts, single tokens and experts that do not all fit, exact', { timeout }, async () => {
    const property = fc.asyncProperty(shapes, async drawn => {
      const shape = { ...drawn, k: Math.min(drawn.k, drawn.experts) }
      const packed = randomModel(shape)
      const random = seededRandom(shape.seed)
      const tokens = Array.from({ length: 12 }, () => Math.floor(random() * shape.vocab))
      const options = { precision: 'exact', expertsPerToken: shape.k } as const
      const reference = await openReferenceBackend(packed, options)
      const want = await logitsOf(reference, tokens.slice(0, 9), tokens.slice(9))
      const expertMemory = 4 * shape.k * packed.experts.layout.expertSize + 4096
      const guards = new GuardedGpu()
      const gpu = { chunkTokens: 16, onDevice: guards.onDevice }
      const backend = await open(packed, 'exact', gpu, { expertMemory })
      try {
        const got = await logitsOf(backend, tokens.slice(0, 9), tokens.slice(9))
        got.forEach((logits, i) => {
          expectClose(logits, want[i], KERNEL, `logits ${i}`)
        })
        const weights = await weightsOf(reference, tokens.slice(0, 9), tokens[9])
        for (const [i, own] of (await weightsOf(backend, tokens.slice(0, 9), tokens[9])).entries()) {
          expectClose(own, weights[i], KERNEL, `weights of experts ${i}`)
        }
        expect(await guards.broken(), 'buffers that kernels wrote beside').toEqual([])
      } finally {
        await backend.close()
        await reference.close()
      }
    })
    await fc.assert(property, { numRuns: 1 }) // each has kernels of its own to compile; formats one by one are in webgpuKernels*
  })
})

describe.each(['exact', 'fast'] as const)(
  'portable kernels at the default limits against the goldens, %s',
  precision => {
    const band = precision === 'exact' ? EXACT_LOGITS : FAST_LOGITS

    test.each(['demo', 'tiny'] as const)('%s, a quarter of the experts in memory', { timeout }, async name => {
      const packed = await openFolder(name === 'demo' ? demoModel : await packTiny('separate'))
      const golden = new Goldens(name).prompt(0)
      const { numLayers, numExperts, expertsPerToken } = packed.config
      const slots = Math.max(2 * expertsPerToken, (numLayers * numExperts) / 4)
      const expertMemory = slots * (packed.experts.layout.expertSize + 64)
      const backend = await open(packed, precision, portable, { expertMemory })
      try {
        expect(backend.description).toMatch(/portable, unpacked/)
        const sequence = backend.createSequence()
        const prompt: StepRun = { sequence, tokens: [...golden.ids], phase: 'prompt', output: 'last' }
        let [{ logits, argmax }] = await backend.step([prompt])
        expectClose(logits as Float32Array, golden.lastLogits, band, 'logits')
        for (let i = 0; i < 4 && precision === 'exact'; i++) {
          expect(argmax, `greedy token ${i}`).toBe(golden.greedy[i])
          const decode: StepRun = { sequence, tokens: [argmax as number], phase: 'decode', output: 'last' }
          ;[{ logits, argmax }] = await backend.step([decode])
        }
        expect(backend.stats().expertMisses).toBeGreaterThan(0)
      } finally {
        await backend.close()
        await packed.close()
      }
    })
  },
)

/**
 * Whoever goes on with the best token finds it computed already. Whatever is done instead, at whatever token, finds what it would
 * find without: tokens and logits are those of a chain that asks for logits, which nothing is computed ahead for.
 */
async function expectNoTraceOfLookingAhead(
  backend: Backend,
  prompt: readonly number[],
  submissions: () => number,
  most = 9,
): Promise<void> {
  const prompted = backend.createSequence()
  const [{ argmax }] = await backend.step([{ sequence: prompted, tokens: prompt, phase: 'prompt', output: 'argmax' }])
  const start = await prompted.hold()
  prompted.release()
  const begin = async () => {
    const sequence = backend.createSequence()
    await sequence.restore(start)
    return { sequence, token: argmax as number }
  }
  const logitsAfter = async (sequence: SequenceState, token: number) =>
    (await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'last' }]))[0].logits as Float32Array
  const greedy = async (sequence: SequenceState, token: number) =>
    (await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'argmax' }]))[0].argmax as number

  const plain = await begin()
  const tokens = [plain.token]
  const logits: Float32Array[] = [] // after tokens[i]
  const steps = 4
  for (let i = 0; i < steps + 2; i++) {
    logits.push(await logitsAfter(plain.sequence, tokens[i]))
    tokens.push(logits[i].reduce((best, value, at, all) => (value > all[best] ? at : best), 0))
  }
  const other = tokens[0] + 1
  await plain.sequence.restore(start)
  const otherLogits = await logitsAfter(plain.sequence, other)
  plain.sequence.release()

  const instead: Record<string, (sequence: SequenceState, at: number) => Promise<void>> = {
    'goes on': async (sequence, at) => expect(await greedy(sequence, tokens[at])).toBe(tokens[at + 1]),
    'asks for logits': async (sequence, at) => expectSameBits(await logitsAfter(sequence, tokens[at]), logits[at]),
    'is called off': async (sequence, at) => {
      const { length } = sequence
      const signal = AbortSignal.abort()
      const run: StepRun = { sequence, tokens: [tokens[at]], phase: 'decode', output: 'argmax' }
      await expect(backend.step([run], { signal })).rejects.toThrow()
      const late = new AbortController()
      const stepping = backend.step([run], { signal: late.signal })
      queueMicrotask(() => late.abort())
      await expect(stepping).rejects.toThrow()
      expect(sequence.length).toBe(length)
      expectSameBits(await logitsAfter(sequence, tokens[at]), logits[at])
    },
    'asks for the weights of routers': async (sequence, at) => {
      const run: StepRun = { sequence, tokens: [tokens[at]], phase: 'decode', output: 'argmax' }
      const [{ routerWeights }] = await backend.step([run], { routing: 'weights' })
      expect(routerWeights?.every(weight => weight > 0)).toBe(true)
      expectClose(await logitsAfter(sequence, tokens[at + 1]), logits[at + 1], KERNEL)
    },
    'is looked into first': async (sequence, at) => {
      await backend.probe(sequence, { tokens: [other, other], layers: [] })
      expectSameBits(await logitsAfter(sequence, tokens[at]), logits[at])
    },
    'lets another one go first': async (sequence, at) => {
      const { sequence: beside } = await begin()
      expectSameBits(await logitsAfter(beside, other), otherLogits)
      beside.release()
      expectSameBits(await logitsAfter(sequence, tokens[at]), logits[at])
    },
    'is held, goes on, and begins there again with another token': async (sequence, at) => {
      const held = await sequence.hold()
      expect(await greedy(sequence, tokens[at])).toBe(tokens[at + 1])
      await sequence.restore(held)
      held.release()
      await greedy(sequence, other)
      await sequence.restore(start)
      expectSameBits(await logitsAfter(sequence, other), otherLogits)
    },
  }
  for (const [what, act] of Object.entries(instead).slice(0, most)) {
    const { sequence } = await begin()
    const before = submissions()
    for (let i = 0; i < steps; i++) expect(await greedy(sequence, tokens[i]), `${what}: token ${i}`).toBe(tokens[i + 1])
    expect(submissions() - before, `${what}: a page is copied, and one token is ahead`).toBeGreaterThanOrEqual(
      steps + 2,
    )
    await act(sequence, steps)
    sequence.release()
  }
  start.release()
}

describe('all experts on the GPU', () => {
  let backend: WebgpuBackend
  let submissions = 0
  let queues: GPUQueue
  let submit: GPUQueue['submit']
  beforeAll(async () => {
    const packed = await openFolder(await packTiny('separate'))
    backend = await open(packed, 'exact', {})
    await backend.loaded()
    queues = Object.getPrototypeOf(backend.device.queue) as GPUQueue
    submit = queues.submit
    queues.submit = function (commands) {
      submissions++
      return submit.call(this, commands)
    }
    return async () => {
      queues.submit = submit
      await backend.close()
      await packed.close()
    }
  }, timeout)

  test('the token after the best one is computed before it is asked for, and leaves no trace', async () => {
    const pages = backend.kv.pages.pagesInUse
    const edge = Array.from({ length: PAGE_TOKENS - 4 }, (_, i) => 5 + (i % 20)) // the tokens after four steps are in another page
    for (const [prompt, most] of [[[5, 6, 7]], [edge, 3]] as [number[], number?][]) {
      const sequence = backend.createSequence()
      await backend.step([{ sequence, tokens: prompt, phase: 'prompt', output: 'none' }])
      const before = submissions
      let token = 5
      const counts: number[] = []
      for (let i = 0; i < 6; i++) {
        const [{ argmax }] = await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'argmax' }])
        token = argmax as number
        counts.push(submissions - before)
      }
      expect(counts, 'one ahead, from the second on').toEqual([1, 3, 4, 5, 6, 7])
      sequence.release()
      await expectNoTraceOfLookingAhead(backend, prompt, () => submissions, most)
      expect(backend.kv.pages.pagesInUse, 'pages').toBe(pages)
      // Other buffers than those that commands were recorded for.
      const { generation } = backend.kv
      for (let more = 64; backend.kv.generation === generation; more *= 2) await backend.kv.reserve(more, 1)
    }
  })

  test('where the GPU has no memory for a state more, it is asked once, and nothing is computed ahead', async () => {
    const { states, device } = backend
    const taken: number[] = []
    while (states.hasFree) taken.push(states.take())
    for (const slot of taken.splice(-2)) states.release(slot) // what a sequence needs
    let asked = 0
    const { createBuffer } = Object.getPrototypeOf(device) as GPUDevice
    device.createBuffer = descriptor => {
      if (descriptor.label === 'recurrent state 0') asked++
      return createBuffer.call(device, { ...descriptor, size: device.limits.maxBufferSize + 4 })
    }
    const sequence = backend.createSequence()
    await backend.step([{ sequence, tokens: [5, 6, 7], phase: 'prompt', output: 'none' }])
    const before = submissions
    let token = 5
    for (let i = 0; i < 4; i++) {
      const [{ argmax }] = await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'argmax' }])
      token = argmax as number
    }
    Reflect.deleteProperty(device, 'createBuffer')
    expect(asked).toBe(1)
    expect(submissions - before).toBe(4)
    sequence.release()
    for (const slot of taken) states.release(slot)
  })

  test('logits come back with their token, into the memory that is given, whoever else is in the step', async () => {
    const { vocabSize } = backend.config
    const prompts = [[1, 2], [3], [4, 5, 6]]
    const alone = []
    for (const prompt of prompts) alone.push(await logitsOf(backend, prompt, [7]))
    const memory = prompts.map(() => new Float32Array(vocabSize).fill(Number.NaN))
    const outputs: StepRun['output'][] = ['last', 'argmax', 'last']
    const intos = [memory[0], memory[1], undefined] // the second wants none, the third has no memory
    const sequences = prompts.map(() => backend.createSequence())
    const step = (tokens: readonly (readonly number[])[], phase: StepRun['phase']) => {
      const runs = sequences.map((sequence, i) => ({ sequence, tokens: tokens[i], output: outputs[i], into: intos[i] }))
      return backend.step(runs.map(run => ({ ...run, phase })))
    }
    for (const [which, tokens] of [prompts, [[7], [7], [7]]].entries()) {
      const results = await step(tokens, which === 0 ? 'prompt' : 'decode')
      expect(results[0].logits).toBe(memory[0])
      expect(results[1].logits).toBeNull()
      for (const i of [0, 2]) {
        const want = alone[i][which].subarray(-vocabSize)
        expectSameBits(results[i].logits as Float32Array, want, `logits ${which} of ${i}`)
      }
      for (const [i, { argmax }] of results.entries()) {
        expect(argmax).toBe(bestOf(alone[i][which].subarray(-vocabSize)))
      }
    }
    expect(memory[1].every(Number.isNaN), 'nobody writes where nothing was asked for').toBe(true)
    const before = submissions
    await backend.step([{ sequence: sequences[0], tokens: [8], phase: 'decode', output: 'last' }])
    expect(submissions - before, 'one for the token and its logits').toBe(1)
    for (const sequence of sequences) sequence.release()
  })
})

// Of the tiny model, and in chunks of the usual size: other tests of the process have compiled the same kernels.
describe('reading ahead', () => {
  let packed: PackedModel
  beforeAll(async () => {
    packed = await openFolder(await packTiny('separate'))
  })
  afterAll(() => packed.close())

  test('the same bits with all experts in memory and with few', { timeout }, async () => {
    const size = packed.experts.layout.expertSize
    const prompt = [154, 46, 7, 6, 199]
    const more = [84, 7, 500, 53, 12, 300]
    const whole = await open(packed, 'exact', {})
    const want = await logitsOf(whole, prompt, more)
    await whole.close()
    const few = { expertMemory: 12 * (size + 64), expertReads: 'buffered' }
    // Guesses that are always trusted, and experts in pools that several layers share.
    const backend = await open(packed, 'exact', { tuning: { AHEAD: 2, TRUST: 0 } }, few)
    const got = await logitsOf(backend, prompt, more)
    got.forEach((logits, i) => {
      expectSameBits(logits, want[i], `logits ${i}`)
    })
    const { expertMisses, prefetchReads, prefetchHits } = backend.stats()
    expect(expertMisses).toBeGreaterThan(0)
    expect(prefetchReads).toBeGreaterThan(0)
    expect(prefetchHits).toBeGreaterThan(0)
    await backend.close()
  })

  test('decodes some tokens with it and some without, to see what is faster', { timeout }, async () => {
    const { expertsPerToken, vocabSize } = packed.config
    const few = { expertMemory: 2 * expertsPerToken * (packed.experts.layout.expertSize + 64) }
    const backend = await open(packed, 'exact', { tuning: { TRUST: 0 } }, few)
    const sequence = backend.createSequence()
    const aheadOf: number[] = [] // reads ahead of each token that read something
    for (let i = 0; aheadOf.length < 48 && i < 150; i++) {
      const before = backend.stats()
      await backend.step([{ sequence, tokens: [(i * 37) % vocabSize], phase: 'decode', output: 'none' }])
      const after = backend.stats()
      const ahead = after.prefetchReads - before.prefetchReads
      if (after.expertMisses + ahead !== before.expertMisses) aheadOf.push(ahead)
    }
    await backend.close()
    const sum = (from: number, to: number) => aheadOf.slice(from, to).reduce((a, b) => a + b, 0)
    expect(sum(0, 36)).toBeGreaterThan(0)
    expect(sum(36, 44)).toBeLessThanOrEqual(0) // some are called off
    expect(sum(44, 48)).toBeGreaterThan(0)
  })

  test('a prompt that wants whole layers reads the next one meanwhile, to the same bits', { timeout }, async () => {
    const { vocabSize, numLayers, numExperts } = packed.config
    const tokens = Array.from({ length: 60 }, (_, i) => (i * 61) % vocabSize) // in one chunk
    // One slot per layer too few, so that they are not all filled at open.
    const expertMemory = numLayers * (numExperts - 1) * (packed.experts.layout.expertSize + 64)
    const results = []
    for (const prefetch of [false, true]) {
      const backend = await open(packed, 'exact', {}, { prefetch, expertMemory })
      results.push({ logits: await logitsOf(backend, tokens, [1]), ...backend.stats() })
      await backend.close()
    }
    const [plain, ahead] = results
    ahead.logits.forEach((logits, i) => {
      expectSameBits(logits, plain.logits[i], `logits ${i}`)
    })
    expect(plain.prefetchReads).toBe(0)
    expect(ahead.prefetchHits).toBeGreaterThan(numExperts / 2)
    expect(ahead.expertMisses).toBeLessThan(plain.expertMisses)
  })
})

describe('an adapter that fails', () => {
  // One dense layer of one format: each device compiles its kernels anew.
  const layer: LayerShape = {
    mixer: {
      kind: 'full_attention',
      ...{ outputGate: false, qkNorm: false, qkvBias: false, outputBias: false, window: null, sinks: false },
      rope: { dims: 32, theta: 1e4, yarn: null },
    },
    feedForward: { kind: 'dense', width: 64, activation: { kind: 'silu' } },
  }
  const packed = randomModel({ ...faultShape, layers: ['full_attention'], kinds: [layer] })
  beforeAll(() => ownDevices())

  test('a device lost in the middle of a step: a typed error; the model can be opened again', { timeout }, async () => {
    const backend = await open(packed, 'fast', { chunkTokens: 16 })
    const sequence = backend.createSequence()
    const step = () => backend.step([{ sequence, tokens: [1, 2, 3], phase: 'prompt', output: 'last' }])
    await step()
    const running = step()
    backend.device.destroy()
    await expect(running).rejects.toMatchObject({ code: 'DEVICE_LOST' })
    expect(sequence.length).toBe(3)
    await expect(step()).rejects.toMatchObject({ code: 'DEVICE_LOST' })
    await backend.close()
    const again = await open(packed, 'fast', { chunkTokens: 16 })
    const [logits] = await logitsOf(again, [1, 2, 3], [])
    expect(logits.every(Number.isFinite)).toBe(true)
    await again.close()
  })

  test('kernels that compute nonsense: checked ones, then portable ones instead, which is said', {
    timeout,
  }, async () => {
    const notices: string[] = []
    const more = { onNotice: (line: string) => notices.push(line) }
    const selfTestError = (kernels: KernelKind) => (kernels === 'portable' ? 0 : 0.5)
    const backend = await open(packed, 'exact', { chunkTokens: 16, selfTestError }, more)
    expect(backend.description).toMatch(/portable, unpacked, checked/)
    const again = notices.filter(notice => notice.includes('computes wrong numbers'))
    expect(again).toHaveLength(2)
    expect(again[0]).toMatch(/; trying again with every access checked$/)
    expect(again[1]).toMatch(/; trying again with portable kernels$/)
    await backend.close()
  })

  test('a buffer that cannot be had is an OutOfMemoryError, and the device lives on', async () => {
    const opened = await openDevice()
    const usage = 0x80 // storage
    const huge = createChecked(opened.device, [{ size: opened.limits.maxBufferSize * 2, usage }], 'expert memory')
    await expect(huge).rejects.toMatchObject({ code: 'OUT_OF_MEMORY', what: 'expert memory' })
    const refused = createChecked(opened.device, [{ size: 64, usage: 3 | usage }], 'expert staging')
    await expect(refused).rejects.toMatchObject({ code: 'OUT_OF_MEMORY', what: 'expert staging' })
    expect(await createChecked(opened.device, [{ size: 64, usage }], 'expert memory')).toHaveLength(1)
    opened.check()
    opened.close()
  })
})
