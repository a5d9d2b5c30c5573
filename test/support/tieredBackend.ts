// The webgpu backend with room for some experts on the GPU and for some in memory, of a small model.
import type { BackendOptions } from '#moeflux/compute/backend.js'
import { slotLayout } from '#moeflux/compute/webgpu/slotLayout.js'
import { openWebgpuBackend, type WebgpuBackend } from '#moeflux/compute/webgpu/webgpuBackend.js'
import type { PackedModel } from '#moeflux/storage/packedModel.js'
import './swiftShader.js'

export interface TierSlots {
  readonly gpu: number
  readonly memory: number
}

export function openTiered(
  packed: PackedModel,
  { gpu, memory }: TierSlots,
  options: Partial<BackendOptions> = {},
): Promise<WebgpuBackend> {
  const { layout } = packed.experts
  const given: BackendOptions = {
    precision: 'exact',
    expertsPerToken: packed.config.expertsPerToken,
    expertReads: 'buffered',
    threads: 1,
    gpuMemory: gpu * slotLayout(layout).stride,
    expertMemory: memory * layout.expertSize,
    ...options,
  }
  return openWebgpuBackend(packed, given, { chunkTokens: 8, tuning: { AHEAD: 2, TRUST: 0 } })
}
