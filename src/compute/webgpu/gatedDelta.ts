// The gated delta rule over runs of tokens.
import type { ModelConfig } from '../../model/config.js'
import type { GpuContext } from './gpuContext.js'
import { linearColumns, linearConstants } from './linearShape.js'
import { type Op, rebound } from './op.js'
import type { StatePool } from './statePool.js'

/** Tokens whose inputs are brought at once; two such chunks are in workgroup memory. */
const CHUNK = 4

export interface GatedDeltaBuffers {
  readonly gates: GPUBuffer // [valueHeads, 2]: -exp(A_log), dt_bias
  readonly runInfo: GPUBuffer
  readonly inputs: GPUBuffer // [tokens, stride of linearColumns]
  readonly convolved: GPUBuffer // [tokens, channels]
  readonly out: GPUBuffer // [tokens, valueHeads * valueDim]
}

export async function gatedDeltaOp(
  gpu: GpuContext,
  config: ModelConfig,
  buffers: GatedDeltaBuffers,
  states: StatePool,
  layer: number,
): Promise<Op> {
  const columns = linearColumns(config)
  // Threads beside each other share a row of the state where they can add up what they have without meeting.
  const isShared = gpu.subgroups !== null && config.linearKeyDim % 16 === 0 && config.linearValueDim % 4 === 0
  const parts = isShared ? 4 : 1
  const kernel = await gpu.kernels.get('gatedDelta', {
    ...linearConstants(config),
    PARTS: parts,
    CHUNK,
    B_AT: columns.b,
    A_AT: columns.a,
  })
  const { gates, runInfo, inputs, convolved, out } = buffers
  const group = rebound(states, () => kernel.bind([gates, runInfo, inputs, convolved, states.buffer(layer), out]))
  return (recorder, { runs }) => recorder.dispatch(kernel, group(), config.linearValueHeads * parts, runs)
}
