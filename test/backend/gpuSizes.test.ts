// The plan of a GPU's memory against what a device is really asked for: a buffer that somebody adds is found here.
import { expect, test } from 'vitest'
import { SOFTWARE_TUNING } from '#moeflux/compute/webgpu/gpuContext.js'
import { gpuModelOf } from '#moeflux/compute/webgpu/gpuModel.js'
import { gpuParts } from '#moeflux/compute/webgpu/gpuParts.js'
import { openWebgpuBackend } from '#moeflux/compute/webgpu/openWebgpuBackend.js'
import { faultShape } from '../support/faultShape.js'
import { randomModel } from '../support/randomModel.js'
import { SmallGpu } from '../support/smallGpu.js'
import '../support/swiftShader.js'

const CONSTANTS = 64 * 1024 // planned per layer

test('what is created is what was planned', { timeout: 60_000 }, async () => {
  // Wide, so that the buffers weigh more than what is estimated.
  const packed = randomModel({ ...faultShape, hidden: 128, vocab: 5000 })
  const precision = 'exact' as const
  const { config } = packed
  const gpu = new SmallGpu()
  const planned = { tokens: 1000, sequences: 3, isContext: true }
  const options = { precision, expertsPerToken: config.expertsPerToken, planned }
  const backend = await openWebgpuBackend(packed, options, { onDevice: gpu.onDevice, chunkTokens: 128 })
  try {
    const { maxStorageBufferBindingSize, maxBufferSize } = backend.device.limits
    const maxBufferBytes = Math.min(maxStorageBufferBindingSize, maxBufferSize)
    const model = gpuModelOf(packed, { ...options, maxBufferBytes, chunkTokens: 128, tuning: SOFTWARE_TUNING })
    const parts = gpuParts(model)
    const slots = config.numLayers * config.numExperts * model.slotBytes
    const bytes = parts.reduce((sum, part) => sum + part.bytes, slots)
    expect(gpu.live).toBeLessThanOrEqual(bytes)
    const hostRows = 2 * (128 + 8) * config.hiddenSize * 4 // planned for a host beside the GPU, which is not there
    expect(gpu.live).toBeGreaterThan(0.995 * (bytes - hostRows - config.numLayers * CONSTANTS))
  } finally {
    await backend.close()
  }
})
