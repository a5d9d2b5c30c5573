// What the engine gets from a packed model folder: config, tensor tables, and where the bytes are. Backends read the
// resident part once at open and experts on demand.
import { type ModelConfig, withoutDraftHead } from '../../model/config.js'
import type { ExpertLayout, ModelTensors } from '../../model/tensors.js'
import type { ByteSource, Folder } from '../source.js'
import type { BlockChecksums } from './blockChecksums.js'

export interface ExpertFiles {
  readonly layout: ExpertLayout // of the first layer that has experts; its `expertSize` is every layer's
  readonly layouts: readonly ExpertLayout[] // of each of config.expertLayers
  /** packed_experts/layer_NN.bin, one for each of config.expertLayers: expert e at e * layout.expertSize. */
  readonly files: readonly ByteSource[]
  /**
   * What their bytes must be, where the folder has checksums and they are asked for. The sources above compare by
   * themselves; this is for readers that open the files on their own.
   */
  readonly checksums: BlockChecksums | null
}

export interface PackedModel {
  readonly name: string
  readonly folder: Folder
  readonly config: ModelConfig
  readonly tensors: ModelTensors
  readonly weights: ByteSource // model_weights.bin; compares with checksums where there are any
  readonly experts: ExpertFiles
  /** Identifies the weights: equal for equal bytes, on any machine. */
  readonly fingerprint: string
  close(): Promise<void>
}

/** The same model for those who draft nothing: its head is not loaded, and takes no memory. */
export function withoutHead(packed: PackedModel): PackedModel {
  if (packed.config.draftHead === null) return packed
  const config = withoutDraftHead(packed.config)
  const { files, layouts } = packed.experts
  const count = config.expertLayers.length
  const experts = { ...packed.experts, files: files.slice(0, count), layouts: layouts.slice(0, Math.max(1, count)) }
  return { ...packed, config, tensors: { ...packed.tensors, draftHead: null }, experts }
}
