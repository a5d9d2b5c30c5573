// How a family's models are written as GGUF files: the architecture's name, what its metadata means in words of config.json,
// and tensors that are called otherwise than usual. The pieces here are those that several families have.
import type { Json } from '../configFields.js'

export interface GgufSource {
  readonly architecture: string // `general.architecture`, and what metadata keys begin with
  readonly modelType: string // of the config that is made of it
  /** Fields of config.json beyond those that all architectures have. */
  configOf(metadata: GgufMetadata, tensors: GgufTensorNames): Json
  /** Of a layer's tensors those whose names are not the usual ones: by the packed folder's name. */
  readonly names?: Readonly<Record<string, string>>
  /** Value heads of delta nets, where they outnumber key heads, take turns: those of all key heads by rank. */
  readonly hasTiledHeads?: boolean
}

/** Which tensors a file has. */
export interface GgufTensorNames {
  has(name: string): boolean
}

/** Metadata by its name behind that of the architecture. */
export interface GgufMetadata {
  number(name: string): number
  optionalNumber(name: string): number | undefined
  get(name: string): unknown
  fail(name: string, want: string): never
}

export function ggufDelta(metadata: GgufMetadata): Json {
  const valueHeads = metadata.number('ssm.time_step_rank')
  return {
    linear_conv_kernel_dim: metadata.number('ssm.conv_kernel'),
    linear_key_head_dim: metadata.number('ssm.state_size'),
    linear_num_key_heads: metadata.number('ssm.group_count'),
    linear_num_value_heads: valueHeads,
    linear_value_head_dim: metadata.number('ssm.inner_size') / valueHeads,
  }
}

export function ggufExperts(metadata: GgufMetadata): Json {
  return {
    num_experts: metadata.number('expert_count'),
    num_experts_per_tok: metadata.number('expert_used_count'),
    moe_intermediate_size: metadata.number('expert_feed_forward_length'),
  }
}

/** Refuses routers that are not a softmax over all experts whose weights are renormalized. */
export function refuseOtherRouters(metadata: GgufMetadata): void {
  if ((metadata.optionalNumber('expert_gating_func') ?? 1) > 1) metadata.fail('expert_gating_func', '1 (softmax)')
  if (metadata.get('expert_weights_norm') === false) metadata.fail('expert_weights_norm', 'true')
  const scale = metadata.optionalNumber('expert_weights_scale') ?? 1
  if (scale !== 0 && scale !== 1) metadata.fail('expert_weights_scale', '1')
  if ((metadata.optionalNumber('expert_group_count') ?? 1) > 1) metadata.fail('expert_group_count', '1')
}
