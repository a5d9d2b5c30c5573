// The gated delta rule over runs of tokens.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { StatePool } from '../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../model/config.js'
import { linearColumns, linearConstants } from '../../model/linearShape.js'

/**
 * Threads that share rows of the state, how many rows, and tokens whose inputs are brought at once, where workgroup memory has room
 * for two such chunks. Threads beside each other can add up what they have without meeting where a subgroup has them; eight need
 * subgroups that are known to be large, as those of matrix units are.
 */
const WAYS = [
  { parts: 8, each: 2, chunk: 8 },
  { parts: 4, each: 1, chunk: 4 },
  { parts: 1, each: 1, chunk: 4 },
]

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
  const { parts, each, chunk } = WAYS.find(({ parts }) => {
    const areTogether = parts === 1 || (gpu.subgroups !== null && (parts === 4 || gpu.tensors))
    return areTogether && keyDim % (4 * parts) === 0 && valueDim % parts === 0
  }) as (typeof WAYS)[number]
  const tokenBytes = 2 * (2 * keyDim * 4 + 8)
  const room = Math.floor(gpu.device.limits.maxComputeWorkgroupStorageSize / tokenBytes)
  const kernel = await gpu.kernels.get('gatedDelta', {
    ...linearConstants(config),
    PARTS: parts,
    EACH: each,
    CHUNK: Math.max(1, Math.min(chunk, room)),
    B_AT: columns.b,
    A_AT: columns.a,
  })
  const { gates, runInfo, inputs, convolved, out } = buffers
  const group = rebound(states, () => kernel.bind([gates, runInfo, inputs, convolved, states.buffer(layer), out]))
  return (recorder, { runs }) => recorder.dispatch(kernel, group(), (config.linearValueHeads * parts) / each, runs)
}
