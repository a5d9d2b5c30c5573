// One token of a linear-attention layer between its projections, or a few of a run, with a state for each.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { StatePool } from '../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../model/config.js'
import { linearColumns, linearConstants } from '../../model/linearShape.js'

export interface LinearStepBuffers {
  readonly constants: GPUBuffer // see gatedDeltaStep.wgsl
  readonly tokenInfo: GPUBuffer
  readonly runInfo: GPUBuffer
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
  const shape = {
    ...linearConstants(config),
    Z_AT: columns.z,
    B_AT: columns.b,
    A_AT: columns.a,
    EPS: config.rmsNormEps,
  }
  const [one, several] = await Promise.all([
    gpu.kernels.get('gatedDeltaStep', shape),
    // Only who drafts has steps with several tokens of a run.
    config.draftHead && gpu.kernels.get('gatedDeltaStep', { ...shape, RUNS: true }),
  ])
  const { constants, tokenInfo, runInfo, status, inputs, out } = buffers
  const bindings = () => [constants, tokenInfo, status, inputs, states.buffer(layer), out]
  const oneGroup = rebound(states, () => one.bind(bindings()))
  const severalGroup = several && rebound(states, () => several.bind([...bindings(), runInfo]))
  return (recorder, { tokens, runs }) => {
    if (runs === tokens) recorder.dispatch(one, oneGroup(), config.linearValueHeads, tokens)
    else if (several && severalGroup) recorder.dispatch(several, severalGroup(), config.linearValueHeads, runs)
    else throw new Error('a run of several tokens, and no kernel for it')
  }
}
