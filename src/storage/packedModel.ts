// What the engine gets from a packed model folder: config, tensor tables, and where the bytes are. Backends read the
// resident part once at open and experts on demand.
import type { ModelConfig } from '../model/config.js'
import type { ExpertLayout, ModelTensors } from '../model/tensors.js'
import type { BlockChecksums } from './blockChecksums.js'
import type { ByteSource, Folder } from './byteSource.js'

export interface ExpertFiles {
  readonly layout: ExpertLayout // of the first layer that has experts; its `expertSize` is every layer's
  readonly layouts: readonly ExpertLayout[] // of each of config.moeLayers
  /** packed_experts/layer_NN.bin, one for each of config.moeLayers: expert e at e * layout.expertSize. */
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
