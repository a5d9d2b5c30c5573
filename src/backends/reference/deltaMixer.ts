// The gated delta net of one layer: projections, a short convolution, the delta rule, a gated norm, the output projection.
import type { ModelConfig } from '../../model/config.js'
import { conv1d } from '../../ops/conv1d/reference.js'
import { deltaGates, gatedDelta } from '../../ops/gatedDelta/reference.js'
import { matVec, takeColumns } from '../../ops/matmul/reference.js'
import { l2Norm, rmsNormGated } from '../../ops/norm/reference.js'
import type { LayerRun } from './layerRun.js'
import type { DeltaWeights } from './model.js'
import type { LinearState } from './sequence.js'

/** x [tokens, hidden] -> [tokens, hidden]; states after the tokens go into `nextStates`, a list for each run. */
export function deltaMixer(
  weights: DeltaWeights,
  x: Float32Array,
  runs: readonly LayerRun[],
  config: ModelConfig,
  nextStates: LinearState[][],
): Float32Array {
  const { linearKeyHeads, linearValueHeads, linearKeyDim, linearValueDim, linearConvDim, rmsNormEps } = config
  const shape = {
    keyHeads: linearKeyHeads,
    valueHeads: linearValueHeads,
    keyDim: linearKeyDim,
    valueDim: linearValueDim,
  }
  const keySize = linearKeyHeads * linearKeyDim
  const valueSize = linearValueHeads * linearValueDim
  const qkv = matVec(weights.inProjQkv, x) // [tokens, convDim]
  const z = matVec(weights.inProjZ, x) // [tokens, valueHeads, valueDim]
  const a = matVec(weights.inProjA, x) // [tokens, valueHeads]
  const b = matVec(weights.inProjB, x) // [tokens, valueHeads]
  const gates = deltaGates(a, b, weights.aLog, weights.dtBias)
  const out = new Float32Array(z.length) // [tokens, valueHeads, valueDim]
  const advance = (before: LinearState, first: number, tokens: number): LinearState => {
    const rows = (array: Float32Array, size: number) => array.subarray(first * size, (first + tokens) * size)
    const mixed = conv1d(rows(qkv, linearConvDim), before.conv, weights.conv)
    const q = takeColumns(mixed.out, linearConvDim, 0, keySize)
    const k = takeColumns(mixed.out, linearConvDim, keySize, keySize)
    const input = {
      q: l2Norm(q, linearKeyDim, linearKeyDim ** -0.5),
      k: l2Norm(k, linearKeyDim),
      v: takeColumns(mixed.out, linearConvDim, 2 * keySize, valueSize),
      decay: rows(gates.decay, linearValueHeads),
      beta: rows(gates.beta, linearValueHeads),
    }
    const recurrent = before.recurrent.slice()
    out.set(gatedDelta(input, recurrent, shape), first * valueSize)
    return { conv: mixed.state, recurrent }
  }
  for (const run of runs) {
    const states: LinearState[] = []
    const stride = run.guesses ? 1 : run.tokens
    for (let t = 0; t < run.tokens; t += stride) {
      states.push(advance(states.at(-1) ?? (run.linear as LinearState), run.row + t, stride))
    }
    nextStates.push(states)
  }
  return matVec(weights.outProj, rmsNormGated(out, z, weights.norm, rmsNormEps))
}
