// The webgpu backend with room for some experts on the GPU and for some in memory, of a small model.
import type { HostedOptions } from '#moeflux/backends/wasm/platform.js'
import { openWebgpuBackend, type WebgpuOptions } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import type { WebgpuBackend } from '#moeflux/backends/webgpu/webgpuBackend.js'
import type { TierWay } from '#moeflux/experts/tierSpeed.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { slotLayout } from '#moeflux/gpu/memory/slotLayout.js'
import '../gpu/swiftShader.js'

export interface TierSlots {
  readonly gpu: number
  readonly memory: number
}

export const USES_TO_PAY = 4

/** Always the same, whatever the machine is busy with. */
export const hybridWay = (threads: number): TierWay => ({
  way: 'hybrid',
  threads,
  usesToPay: USES_TO_PAY,
  prompts: { uploadFromTokens: 64 },
  line: '',
})

export function openTiered(
  packed: PackedModel,
  { gpu, memory }: TierSlots,
  options: Partial<HostedOptions> = {},
  gpuOptions: WebgpuOptions = { way: hybridWay },
): Promise<WebgpuBackend> {
  const { layout } = packed.experts
  const given: HostedOptions = {
    precision: 'exact',
    expertsPerToken: packed.config.expertsPerToken,
    expertReads: 'buffered',
    threads: 1,
    gpuMemory: gpu * slotLayout(layout).stride,
    expertMemory: memory * Math.ceil(layout.expertSize / 4096) * 4096,
    ...options,
  }
  return openWebgpuBackend(packed, given, { chunkTokens: 8, tuning: { AHEAD: 2, TRUST: 0, GROWTH: 1 }, ...gpuOptions })
}
