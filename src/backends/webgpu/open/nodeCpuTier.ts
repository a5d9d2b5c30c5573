// Node as a place for the host tier: threads of the process compute, and threads of their own read files.
import { ExpertReaderPool } from '../../../experts/readers/nodeReaderPool.js'
import type { PackedModel } from '../../../files/packed/packedModel.js'
import { nodeHost } from '../../wasm/nodePlatform.js'
import type { HostedOptions } from '../../wasm/platform.js'
import { gpuReaders } from '../experts/nodeExpertReader.js'
import type { TierPlace } from './openCpuTier.js'

export function nodeTierPlace(
  { config, experts }: PackedModel,
  files: readonly string[],
  options: HostedOptions,
): TierPlace {
  const { expertSize } = experts.layout
  const count = config.expertLayers.length * config.numExperts
  const host = options.wasmHost ?? nodeHost()
  return {
    host,
    readers: host.readers(count * expertSize) + gpuReaders(expertSize, count),
    openReader: workers =>
      new ExpertReaderPool({
        files,
        expertSize,
        banks: workers.memories,
        slotBytes: workers.slots.length * workers.slotBytes,
        yieldsToDemands: true,
        reads: options.expertReads,
        faults: options.readFaults,
        checksums: experts.checksums,
        onNotice: options.onNotice,
      }),
  }
}
