// The plan of a GPU's memory against what a device is really asked for: a buffer that somebody adds is found here.
import { expect, test } from 'vitest'
import { gpuModelOf } from '#moeflux/backends/webgpu/open/gpuModel.js'
import { gpuParts } from '#moeflux/backends/webgpu/open/gpuPlan.js'
import { openWebgpuBackend } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import { SOFTWARE_TUNING } from '#moeflux/gpu/device/gpuContext.js'
import { type AttentionShape, type LayerShape, SOFTMAX_ROUTER } from '#moeflux/model/layers.js'
import { faultShape } from '../../support/faults/faultShape.js'
import { SmallGpu } from '../../support/gpu/smallGpu.js'
import { withClaimedTensors } from '../../support/models/claimedTensors.js'
import { randomModel } from '../../support/models/randomModel.js'
import '../../support/gpu/swiftShader.js'

const CONSTANTS = 64 * 1024 // planned per layer

const attention: AttentionShape = {
  kind: 'full_attention',
  ...{ outputGate: false, qkNorm: false, qkvBias: true, outputBias: true, window: 5, sinks: true },
  rope: { dims: 32, theta: 1e4, yarn: null },
}
const activation = { kind: 'silu' } as const
const dense: LayerShape['feedForward'] = { kind: 'dense', width: 192, activation }
const router = { ...SOFTMAX_ROUTER, bias: true, selectionBias: true }
const moe: LayerShape['feedForward'] = { kind: 'moe', router, shared: 'plain', activation, expertBias: true }
const linear = { kind: 'linear_attention' } as const

interface Planned {
  readonly name: string
  readonly kinds?: LayerShape[]
  readonly head?: boolean
}

const models: Planned[] = [
  { name: 'experts in all layers' },
  { name: 'a head for drafts', head: true },
  {
    name: 'experts in some, biases wherever there can be some',
    kinds: [
      { mixer: linear, feedForward: dense },
      { mixer: attention, feedForward: moe },
      { mixer: linear, feedForward: moe },
    ],
  },
  {
    name: 'no experts',
    kinds: [
      { mixer: linear, feedForward: dense },
      { mixer: attention, feedForward: dense },
      { mixer: linear, feedForward: { ...dense, width: 64 } },
    ],
  },
]

test.each(models)('what is created is what was planned: $name', ({ kinds, head }) => checkPlan({ kinds, head }))

test('what is created is what was planned: matrix units, which want pairs in sixteens', () =>
  withClaimedTensors(() => checkPlan({ tensors: true })))

async function checkPlan({ kinds, head, tensors = false }: Omit<Planned, 'name'> & { readonly tensors?: boolean }) {
  // Wide, so that the buffers weigh more than what is estimated; many experts, so that their sixteens do.
  const { experts } = faultShape
  const shape = { ...faultShape, hidden: 128, vocab: 5000, kinds, head, experts: tensors ? 8 * experts : experts }
  const packed = randomModel(shape)
  const precision = tensors ? 'fast' : 'exact'
  const { config } = packed
  const gpu = new SmallGpu()
  const planned = { tokens: 1000, sequences: 3, isContext: true }
  const options = { precision, expertsPerToken: config.expertsPerToken, planned, drafts: head } as const
  const backend = await openWebgpuBackend(packed, options, { onDevice: gpu.onDevice, chunkTokens: 128 })
  try {
    expect(backend.description.includes('matrix units')).toBe(tensors)
    const { maxStorageBufferBindingSize, maxBufferSize } = backend.device.limits
    const maxBufferBytes = Math.min(maxStorageBufferBindingSize, maxBufferSize)
    const model = gpuModelOf(packed, { ...options, maxBufferBytes, chunkTokens: 128, tuning: SOFTWARE_TUNING, tensors })
    const parts = gpuParts(model)
    const slots = config.expertLayers.length * config.numExperts * model.slotBytes
    const bytes = parts.reduce((sum, part) => sum + part.bytes, slots)
    expect(gpu.live).toBeLessThanOrEqual(bytes)
    const hostRows = 2 * (128 + 8) * config.hiddenSize * 4 // planned for a host beside the GPU, which is not there
    expect(gpu.live).toBeGreaterThan(0.995 * (bytes - hostRows - (config.numLayers + (head ? 1 : 0)) * CONSTANTS))
  } finally {
    await backend.close()
  }
}
