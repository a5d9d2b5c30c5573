// Causal convolution, SiLU and the q and k norms of a linear layer.
import { type GpuContext, workgroupFor } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { StatePool } from '../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../model/config.js'
import { linearConstants } from '../../model/linearShape.js'

export interface ConvBuffers {
  readonly taps: GPUBuffer // [channels, 4]
  readonly tokenInfo: GPUBuffer
  readonly runInfo: GPUBuffer
  readonly inputs: GPUBuffer // [tokens, stride of linearColumns]
  readonly out: GPUBuffer // [tokens, channels]
}

export async function conv1dOp(
  gpu: GpuContext,
  config: ModelConfig,
  buffers: ConvBuffers,
  states: StatePool,
  layer: number,
): Promise<Op> {
  const width = Math.max(config.linearKeyDim, config.linearValueDim)
  const WG = workgroupFor(gpu, width, 128)
  const SHARE = Math.ceil(width / WG) // channels of a head that a thread has
  const kernel = await gpu.kernels.get('conv1d', { ...linearConstants(config), WG, SHARE })
  const group = rebound(states, () =>
    kernel.bind([buffers.taps, buffers.tokenInfo, buffers.runInfo, buffers.inputs, states.buffer(layer), buffers.out]),
  )
  const heads = 2 * config.linearKeyHeads + config.linearValueHeads
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), heads, tokens)
}
