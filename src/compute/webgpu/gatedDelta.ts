// The gated delta rule over runs of tokens.
import type { ModelConfig } from '../../model/config.js'
import type { GpuContext } from './gpuContext.js'
import { linearColumns, linearConstants } from './linearShape.js'
import { type Op, rebound } from './op.js'
import type { StatePool } from './statePool.js'

/** Tokens whose inputs are brought at once, where workgroup memory has room for two such chunks. */
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
  const { linearKeyDim: keyDim, linearValueDim: valueDim } = config
  // Threads beside each other share a row of the state where they can add up what they have without meeting. Eight need subgroups
  // that are known to be large, as those of matrix units are.
  const parts = [8, 4, 1].find(count => {
    const areTogether = count === 1 || (gpu.subgroups !== null && (count === 4 || gpu.tensors))
    return areTogether && keyDim % (4 * count) === 0 && valueDim % count === 0
  }) as number
  const tokenBytes = 2 * (2 * keyDim * 4 + 8)
  const room = Math.floor(gpu.device.limits.maxComputeWorkgroupStorageSize / tokenBytes)
  const kernel = await gpu.kernels.get('gatedDelta', {
    ...linearConstants(config),
    PARTS: parts,
    CHUNK: Math.max(1, Math.min(CHUNK, room)),
    B_AT: columns.b,
    A_AT: columns.a,
  })
  const { gates, runInfo, inputs, convolved, out } = buffers
  const group = rebound(states, () => kernel.bind([gates, runInfo, inputs, convolved, states.buffer(layer), out]))
  return (recorder, { runs }) => recorder.dispatch(kernel, group(), config.linearValueHeads * parts, runs)
}
