// Room for long steps of a prompt, on GPUs of any size: they never cost an expert its place, and nothing stays behind of what was tried.
import { expect, test } from 'vitest'
import { gpuModelOf } from '#moeflux/backends/webgpu/open/gpuModel.js'
import { gpuParts } from '#moeflux/backends/webgpu/open/gpuPlan.js'
import { takeRoomForChunks } from '#moeflux/backends/webgpu/open/gpuReservation.js'
import { SOFTWARE_TUNING } from '#moeflux/gpu/device/gpuContext.js'
import { openDevice } from '#moeflux/gpu/device/gpuDevice.js'
import { faultShape } from '../../support/faults/faultShape.js'
import { SmallGpu } from '../../support/gpu/smallGpu.js'
import { randomModel } from '../../support/models/randomModel.js'
import '../../support/gpu/swiftShader.js'

const LONG = 2048
const SHORT = 512

test('long steps only where all experts have room beside them', async () => {
  const packed = randomModel({ ...faultShape, hidden: 128, vocab: 500 })
  const { config } = packed
  const gpu = new SmallGpu()
  const { device } = await openDevice({ onDevice: gpu.onDevice })
  const planned = { tokens: 100, sequences: 1, isContext: true }
  const modelFor = (chunkTokens: number) =>
    gpuModelOf(packed, {
      ...{ expertsPerToken: config.expertsPerToken, precision: 'fast', planned, chunkTokens, tuning: SOFTWARE_TUNING },
      maxBufferBytes: device.limits.maxStorageBufferBindingSize,
      tensors: true,
    })
  const take = async (limit: number) => {
    gpu.limit = limit
    const { chunkTokens, room, model } = await takeRoomForChunks(device, [LONG, SHORT], tokens => {
      return { model: modelFor(tokens), refusals: 0, isShared: false, reserve: 0, memory: null, host: null }
    })
    expect(model.chunkTokens).toBe(chunkTokens)
    expect(gpu.live, 'pools and nothing else').toBe(room.buffers.reduce((sum, { size }) => sum + size, 0))
    for (const buffer of room.buffers) buffer.destroy()
    return { chunkTokens, slots: room.plan.gpuSlots }
  }
  const all = config.expertLayers.length * config.numExperts
  const { slotBytes } = modelFor(SHORT)
  const fixed = (tokens: number) => gpuParts(modelFor(tokens)).reduce((sum, { bytes }) => sum + bytes, 0)
  try {
    expect(fixed(LONG)).toBeGreaterThan(fixed(SHORT) + all * slotBytes) // so that there is something to choose
    expect(await take(fixed(LONG) + all * slotBytes)).toEqual({ chunkTokens: LONG, slots: all })
    expect(await take(fixed(LONG) + (all - 4) * slotBytes)).toEqual({ chunkTokens: SHORT, slots: all })
    expect(await take(fixed(SHORT) + all * slotBytes)).toEqual({ chunkTokens: SHORT, slots: all })
    const few = await take(1.01 * fixed(SHORT) + (all / 2) * slotBytes)
    expect(few.chunkTokens).toBe(SHORT)
    expect(few.slots).toBeGreaterThan(0)
    expect(few.slots).toBeLessThan(all)
    await expect(take(0.5 * fixed(SHORT))).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
    expect(gpu.live).toBe(0)
  } finally {
    device.destroy()
  }
})
