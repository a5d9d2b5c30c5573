// One token of a linear-attention layer between its projections.
import type { ModelConfig } from '../../model/config.js'
import type { GpuContext } from './gpuContext.js'
import { linearColumns, linearConstants } from './linearShape.js'
import { type Op, rebound } from './op.js'
import type { StatePool } from './statePool.js'

export interface LinearStepBuffers {
  readonly constants: GPUBuffer // see linearStep.wgsl
  readonly tokenInfo: GPUBuffer
  readonly status: GPUBuffer
  readonly inputs: GPUBuffer // [tokens, stride of linearColumns]
  readonly out: GPUBuffer // [tokens, valueHeads * valueDim]
}

export async function linearStepOp(
  gpu: GpuContext,
  config: ModelConfig,
  buffers: LinearStepBuffers,
  states: StatePool,
  layer: number,
): Promise<Op> {
  const columns = linearColumns(config)
  const kernel = await gpu.kernels.get('linearStep', {
    ...linearConstants(config),
    Z_AT: columns.z,
    B_AT: columns.b,
    A_AT: columns.a,
    EPS: config.rmsNormEps,
  })
  const { constants, tokenInfo, status, inputs, out } = buffers
  const group = rebound(states, () => kernel.bind([constants, tokenInfo, status, inputs, states.buffer(layer), out]))
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), config.linearValueHeads, tokens)
}
