// What only a GPU can do wrong while experts stream: memory that is refused and a device that goes, in the middle of a
// step. Reads that fail are in readFaults.gpu.test.ts, on every backend.
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { SequenceState } from '#moeflux/backends/backend.js'
import type { WebgpuBackend } from '#moeflux/backends/webgpu/webgpuBackend.js'
import { type FaultModel, type FaultRow, faultModel, faultRows } from '../../support/faults/faultBackends.js'
import { ownDevices } from '../../support/gpu/sharedGpu.js'
import { expectSameBits } from '../../support/ops/bands.js'

const timeout = 120_000
const row = faultRows.find(({ name }) => name === 'webgpu, files') as FaultRow
let model: FaultModel
beforeAll(async () => {
  model = await faultModel()
})
afterAll(() => model.close())

async function open() {
  const { backend, disk } = await row.open(model.packed, 4)
  return { backend: backend as WebgpuBackend, disk }
}

async function prompt(backend: WebgpuBackend, sequence: SequenceState, tokens: readonly number[]) {
  const [{ logits }] = await backend.step([{ sequence, tokens, phase: 'prompt', output: 'last' }])
  return logits as Float32Array
}

/** From now on the device refuses all buffers that are asked for after `skip` others. Whether it has. */
function refuseBuffer({ device }: WebgpuBackend, skip: number): () => boolean {
  let left = skip
  const { createBuffer } = Object.getPrototypeOf(device) as GPUDevice
  device.createBuffer = descriptor => {
    const size = left-- <= 0 ? device.limits.maxBufferSize + 4 : descriptor.size
    return createBuffer.call(device, { ...descriptor, size })
  }
  return () => {
    Reflect.deleteProperty(device, 'createBuffer')
    return left < 0
  }
}

describe('memory that is refused', () => {
  let backend: WebgpuBackend
  beforeAll(async () => {
    ;({ backend } = await open())
  }, timeout)
  afterAll(() => backend?.close())

  /** Does the work with each buffer that it asks for refused in turn, until it asks for no more. */
  const refuseEach = async (work: () => Promise<Float32Array | null>, want: Float32Array | null) => {
    let refusals = 0
    for (;;) {
      const stop = refuseBuffer(backend, refusals)
      const outcome = await work().catch((error: Error) => error)
      if (!stop()) {
        if (want !== null) expectSameBits(outcome as Float32Array, want)
        return refusals
      }
      refusals++
      expect(outcome).toMatchObject({ code: 'OUT_OF_MEMORY' })
    }
  }

  test('while pools grow: the step fails, nothing has changed, and it works once there is memory', {
    timeout,
  }, async () => {
    const first = backend.createSequence()
    const want = await prompt(backend, first, [7, 30])
    const sequences: SequenceState[] = [first]
    let refusals = 0
    while (sequences.length < 12) {
      const sequence = backend.createSequence()
      refusals += await refuseEach(() => {
        expect(sequence.length).toBe(0)
        return prompt(backend, sequence, [7, 30])
      }, want)
      sequences.push(sequence)
    }
    expect(refusals).toBe(5) // states grew twice, by a buffer for each of two layers, and pages once
    for (const sequence of sequences) sequence.release()
  })

  test('while a page is copied that others hold', { timeout }, async () => {
    const sequence = backend.createSequence()
    await prompt(backend, sequence, [7, 30])
    const want = await prompt(backend, sequence, [1])
    await sequence.clear()
    await prompt(backend, sequence, [7, 30])
    const held = await sequence.hold()
    await refuseEach(() => prompt(backend, sequence, [1]), want)
    held.release()
    sequence.release()
  })

  test('while a state goes to the host or comes back', { timeout }, async () => {
    const sequence = backend.createSequence()
    await prompt(backend, sequence, [7, 30])
    const layers = [0, 1, 2]
    const exported = await Promise.all(layers.map(layer => sequence.exportLayer(layer)))
    for (const layer of layers) {
      const refusals = await refuseEach(async () => {
        expect(await sequence.exportLayer(layer)).toEqual(exported[layer])
        return null
      }, null)
      expect(refusals).toBe(exported[layer].kind === 'full_attention' ? 2 : 1) // keys and values, or all at once
    }
    const want = await prompt(backend, sequence, [1])
    await sequence.clear()
    await refuseEach(async () => {
      await sequence.importLayers(2, exported)
      return null
    }, null)
    expectSameBits(await prompt(backend, sequence, [1]), want)
    sequence.release()
  })

  test('while rows and weights of routers go to the host', { timeout }, async () => {
    const sequence = backend.createSequence()
    const inside = async () => {
      const run = { sequence, tokens: [7, 30], phase: 'prompt', output: 'none', hidden: true } as const
      const [{ hidden, routerWeights }] = await backend.step([run], { routing: 'weights' })
      await sequence.clear()
      return Float32Array.from([...hidden!, ...routerWeights!])
    }
    expect(await refuseEach(inside, await inside())).toBe(2)
    sequence.release()
  })

  test('a state that goes to the host while pools grow for others is that state', { timeout }, async () => {
    const sequence = backend.createSequence()
    await prompt(backend, sequence, [7, 30])
    const { device, kv, states } = backend
    const grow = async () => {
      const { generation } = kv
      for (let pages = 8; kv.generation === generation; pages *= 2) await kv.reserve(pages, 1)
      const before = states.generation
      for (let slots = 8; states.generation === before; slots *= 2) await states.reserve(slots)
    }
    for (const layer of [0, 1]) {
      const want = await sequence.exportLayer(layer)
      // It has asked for memory to copy to, and hears of it when the buffers that it copies from are others.
      let answer = () => {}
      const answered = new Promise<void>(resolve => (answer = resolve))
      const pop = device.popErrorScope.bind(device)
      device.popErrorScope = () => pop().then(error => answered.then(() => error))
      const exporting = sequence.exportLayer(layer)
      Reflect.deleteProperty(device, 'popErrorScope')
      await backend.inTurn(grow)
      answer()
      expect(await exporting).toEqual(want)
    }
    expect(backend.failure).toBeNull()
    sequence.release()
  })
})

describe('a device that is lost while a read hangs', () => {
  beforeAll(ownDevices)

  test.each(['prompt', 'decode'] as const)('%s: a typed error at once, and the end', { timeout }, async phase => {
    const { backend, disk } = await open()
    const sequence = backend.createSequence()
    await prompt(backend, sequence, [7, 30])
    disk.pickAndHold(1)
    const running = backend.step([{ sequence, tokens: [9], phase, output: 'last' }])
    while (!disk.isWaiting) await sleep(1)
    backend.device.destroy()
    await expect(running).rejects.toMatchObject({ code: 'DEVICE_LOST' })
    expect(sequence.length).toBe(2)
    disk.letGo()
    await expect(prompt(backend, sequence, [9])).rejects.toMatchObject({ code: 'DEVICE_LOST' })
    await backend.close()
  })
})
