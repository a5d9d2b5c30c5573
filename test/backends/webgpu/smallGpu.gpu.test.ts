// A GPU of any size, from nothing to more than enough: the model opens there and says the same as the reference, or it is
// refused in words. Never a driver's message, never an answer that is wrong.
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Backend, SequenceState } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import { gpuModelOf } from '#moeflux/backends/webgpu/open/gpuModel.js'
import { gpuParts } from '#moeflux/backends/webgpu/open/gpuPlan.js'
import { openWebgpuBackend } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import type { WebgpuBackend } from '#moeflux/backends/webgpu/webgpuBackend.js'
import { SOFTWARE_TUNING } from '#moeflux/gpu/device/gpuContext.js'
import { slotLayout } from '#moeflux/gpu/memory/slotLayout.js'
import { type FaultModel, faultModel } from '../../support/faults/faultBackends.js'
import { faultShape } from '../../support/faults/faultShape.js'
import { SmallGpu } from '../../support/gpu/smallGpu.js'
import { hybridWay } from '../../support/models/tieredBackend.js'

const timeout = 120_000
const prompt = [7, 30, 2, 41, 19]
const all = 30 // experts
const planned = { tokens: 64, sequences: 1, isContext: true }
let model: FaultModel
let reference: Backend
let want: number[]
let slotBytes: number
let fixedBytes: number // of the plan, besides slots for experts

beforeAll(async () => {
  // Experts that are large beside states and pages, as those of real models are.
  model = await faultModel({ ...faultShape, hidden: 64, intermediate: 128, sharedIntermediate: 128 })
  slotBytes = slotLayout(model.packed.experts.layout).stride
  const { expertsPerToken } = model.packed.config
  const options = { precision: 'exact', expertsPerToken, planned, tuning: SOFTWARE_TUNING } as const
  const parts = gpuParts(gpuModelOf(model.packed, { ...options, maxBufferBytes: 2 ** 27, chunkTokens: 8 }))
  fixedBytes = parts.reduce((sum, { bytes }) => sum + bytes, 0)
  reference = await openReferenceBackend(model.packed, { precision: 'exact', expertsPerToken })
  want = await greedy(reference)
}, timeout)
afterAll(async () => {
  await reference.close()
  await model.close()
})

test('a model whose heads are wider than a workgroup is refused in words, whichever kernel has no room first', async () => {
  const gpu = new SmallGpu()
  const { packed, close } = await faultModel({ ...faultShape, valueDim: 288 })
  try {
    const options = { precision: 'exact', expertsPerToken: packed.config.expertsPerToken, planned } as const
    const error = await openWebgpuBackend(packed, options, { onDevice: gpu.onDevice, chunkTokens: 8 }).catch(
      error => error,
    )
    expect(error).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    expect(error.message).toMatch(/^backend webgpu: this GPU cannot run kernel \w+ for this model, backend wasm can: /)
  } finally {
    await close()
  }
})

/** `length`: of what is said. */
async function greedy(
  backend: Backend,
  sequence = backend.createSequence(),
  tokens = prompt,
  length = 6,
): Promise<number[]> {
  const out: number[] = []
  for (let i = 0; i < length; i++) {
    const run = i === 0 ? { tokens, phase: 'prompt' as const } : { tokens: out.slice(-1), phase: 'decode' as const }
    const [{ argmax }] = await backend.step([{ sequence, ...run, output: 'argmax' }])
    out.push(argmax as number)
  }
  return out
}

function open(onDevice: (device: GPUDevice) => void, notices: string[] = []): Promise<WebgpuBackend> {
  const { expertsPerToken } = model.packed.config
  const onNotice = (line: string) => notices.push(line)
  const options = { precision: 'exact', expertsPerToken, planned, threads: 1, onNotice } as const
  const gpuOptions = { onDevice, chunkTokens: 8, isShared: false, reserve: 0, way: hybridWay }
  return openWebgpuBackend(model.packed, options, gpuOptions)
}

/** Ever more sequences, until memory for their state is refused; each says what it says alone, before and after. */
async function growUntilFull(backend: WebgpuBackend): Promise<{ sequences: number; slots: number[] }> {
  const kept: { sequence: SequenceState; told: SequenceState }[] = []
  const slots: number[] = []
  for (;;) {
    const sequence = backend.createSequence()
    const told = reference.createSequence()
    const tokens = [kept.length, 30, 2]
    const said = await greedy(backend, sequence, tokens, 3).catch(error => error)
    slots.push(backend.stats().tiers?.gpu.slots ?? backend.stats().expertSlots)
    if (said instanceof Error) {
      expect(said).toMatchObject({ code: 'OUT_OF_MEMORY' })
      break
    }
    expect(said, `sequence ${kept.length}`).toEqual(await greedy(reference, told, tokens, 3))
    kept.push({ sequence, told })
  }
  // Nothing has changed for the others, and there is room again when one of them goes.
  kept.pop()?.sequence.release()
  for (const { sequence, told } of [kept[0], kept[kept.length - 1]]) {
    expect(await greedy(backend, sequence, [5], 3)).toEqual(await greedy(reference, told, [5], 3))
  }
  return { sequences: kept.length, slots }
}

const isPlan = (line: string) => line.startsWith('GPU:')

test('everything fits: no experts elsewhere, no word about it, and slots give way to states', { timeout }, async () => {
  const notices: string[] = []
  const gpu = new SmallGpu(fixedBytes + all * slotBytes)
  const backend = await open(gpu.onDevice, notices)
  try {
    expect(await greedy(backend)).toEqual(want)
    expect(backend.stats()).toMatchObject({ expertSlots: all, tiers: null })
    expect(notices.filter(isPlan)).toEqual([])
    expect(gpu.refusals).toBe(0)
    await backend.loadAllExperts()
    const { sequences, slots } = await growUntilFull(backend)
    expect(sequences).toBeGreaterThan(8) // more than there were pages for
    expect(slots[0]).toBe(all)
    expect(slots.at(-1), 'slots given for states').toBe(3 * 4)
    expect(gpu.peak).toBeLessThanOrEqual(gpu.limit)
  } finally {
    await backend.close()
  }
})

test('the fixed part does not fit: refused at once, by how much', { timeout }, async () => {
  for (const share of [0, 0.2, 0.6, 0.99]) {
    const gpu = new SmallGpu(Math.floor(share * fixedBytes))
    const failure = await open(gpu.onDevice).catch(error => error)
    expect(failure).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    expect(failure.message).toMatch(/^backend webgpu: the GPU's memory is too small by [\d.]+ MB .*; .+$/)
    expect(gpu.live, 'left behind').toBe(0)
  }
})

test.each([5, 20])(
  '%s of 30 experts fit: the others are computed from memory, more when states grow',
  { timeout },
  async fitting => {
    const notices: string[] = []
    const gpu = new SmallGpu(1.01 * fixedBytes + fitting * slotBytes)
    const backend = await open(gpu.onDevice, notices)
    try {
      expect(await greedy(backend)).toEqual(want)
      const { tiers } = backend.stats()
      expect(tiers?.gpu.slots).toBeGreaterThan(fitting - 8) // pools are equal, and what is found has edges
      expect(tiers?.gpu.slots).toBeLessThan(fitting + 4)
      expect(notices.filter(isPlan)).toHaveLength(1)
      expect(notices.find(isPlan)).toMatch(
        /^GPU: [\d.]+ MB weights and state, \d+ experts \(.*\); memory: \d+ experts \(.*\); disk: 0$/,
      )
      const { slots } = await growUntilFull(backend)
      expect(slots.at(-1)).toBeLessThanOrEqual(slots[0])
      expect(slots.at(-1)).toBeGreaterThanOrEqual(4)
    } finally {
      await backend.close()
    }
  },
)

// Whatever is asked for: what was there when the plan was made is gone, as where another program has taken it.
test.each(['recurrent state 0', 'hidden', 'expert staging', 'model.norm.weight'])(
  'refused in the middle of opening, at %s: once more, more modestly',
  { timeout },
  async label => {
    let devices = 0
    const gpu = new SmallGpu()
    const stopped = new Error('far enough')
    const failure = await open(device => {
      if (devices++ === 1) throw stopped
      gpu.onDevice(device)
      const { createBuffer } = device
      device.createBuffer = descriptor => {
        if (descriptor.label === label) gpu.limit = gpu.live
        return createBuffer.call(device, descriptor)
      }
    }).catch(error => error)
    expect(failure).toBe(stopped)
    expect(gpu.refusals).toBeGreaterThan(0)
  },
)
