// One decoder layer over the tokens of one or more sequences: h += mixer(rms(h)); h += moe(rms(h)). Written beside the
// model's definition; every row is computed the same whichever rows are beside it.
import type { ModelConfig } from '../../model/config.js'
import type { LayerProbe } from '../backend.js'
import { sigmoid } from './activations.js'
import { attention } from './attention.js'
import { combine } from './combine.js'
import { conv1d } from './conv1d.js'
import { deltaGates } from './deltaGates.js'
import { type ExpertWeights, expert } from './expert.js'
import { gatedDelta } from './gatedDelta.js'
import { l2Norm } from './l2Norm.js'
import type { FullAttentionWeights, LayerWeights, LinearAttentionWeights } from './loadModel.js'
import { matVec } from './matVec.js'
import { rmsNorm } from './rmsNorm.js'
import { rmsNormGated } from './rmsNormGated.js'
import { rope } from './rope.js'
import { router } from './router.js'
import { type LinearState, PAGE_TOKENS } from './sequence.js'
import { sigmoidGate } from './sigmoidGate.js'

/** Some tokens of one sequence: rows [row, row + tokens) of the step's arrays. */
export interface LayerRun {
  readonly row: number
  readonly tokens: number
  readonly position: number // of the first token
  /** Pages of this layer with room for the tokens; only for full attention. */
  readonly pages: { readonly keys: readonly Float32Array[]; readonly values: readonly Float32Array[] } | null
  /** State before the tokens; only for linear attention. */
  readonly linear: LinearState | null
}

export interface LayerContext {
  readonly config: ModelConfig
  readonly expertsPerToken: number
  /** Gives this layer's experts, each once, in any order. */
  takeExperts(wanted: readonly number[]): AsyncIterable<[number, ExpertWeights]>
  /** Wall time up to here belongs to this phase; also a place to stop. */
  phase(name: 'mixer' | 'router' | 'experts'): Promise<void>
}

export interface LayerResult {
  readonly probe: Omit<LayerProbe, 'layer'>
  /** State after the tokens, run by run; null for full attention. */
  readonly linear: readonly (LinearState | null)[]
}

/** hidden [tokens, hidden] */
export async function forwardLayer(
  weights: LayerWeights,
  hidden: Float32Array,
  runs: readonly LayerRun[],
  context: LayerContext,
): Promise<LayerResult> {
  const { config } = context
  const input = rmsNorm(hidden, weights.inputNorm, config.rmsNormEps)
  const linear: (LinearState | null)[] = []
  const mixerOut =
    weights.kind === 'full_attention'
      ? fullAttention(weights, input, runs, config)
      : linearAttention(weights, input, runs, config, linear)
  const middle = add(hidden, mixerOut)
  await context.phase('mixer')

  const normed = rmsNorm(middle, weights.postAttentionNorm, config.rmsNormEps)
  const routerLogits = matVec(weights.router, normed)
  const routing = router(routerLogits, config.numExperts, context.expertsPerToken)
  await context.phase('router')

  const sharedGate = matVec(weights.sharedExpertGate, normed).map(sigmoid)
  const sharedOut = expert(weights.sharedExpert, normed)
  const routed = await routedExperts(normed, routing.indices, context)
  const mlpOut = combine(routed, routing.weights, sharedOut, sharedGate)
  const out = add(middle, mlpOut)
  await context.phase('experts')

  const { indices: routerIndices, weights: routerWeights } = routing
  const probe = { mixerOut, normed, routerLogits, routerIndices, routerWeights, sharedOut, sharedGate, mlpOut, out }
  return { probe, linear }
}

function fullAttention(weights: FullAttentionWeights, x: Float32Array, runs: readonly LayerRun[], config: ModelConfig) {
  const { numHeads: heads, numKvHeads: kvHeads, headDim, rotaryDim, ropeTheta, rmsNormEps } = config
  const queryAndGate = matVec(weights.qProj, x) // [tokens, heads, 2, headDim]
  const tokens = queryAndGate.length / (heads * 2 * headDim)
  const queries = takeHeads(queryAndGate, headDim, 0) // [tokens, heads, headDim]
  const gates = takeHeads(queryAndGate, headDim, 1) // [tokens, heads, headDim]
  const normedQueries = rmsNorm(queries, weights.qNorm, rmsNormEps)
  const normedKeys = rmsNorm(matVec(weights.kProj, x), weights.kNorm, rmsNormEps) // [tokens, kvHeads, headDim]
  const values = matVec(weights.vProj, x) // [tokens, kvHeads, headDim]
  const attended = new Float32Array(tokens * heads * headDim)
  const rowSize = kvHeads * headDim
  for (const run of runs) {
    const pages = run.pages as NonNullable<LayerRun['pages']>
    for (let t = 0; t < run.tokens; t++) {
      const row = run.row + t
      const position = run.position + t
      const query = normedQueries.subarray(row * heads * headDim, (row + 1) * heads * headDim)
      const key = normedKeys.subarray(row * rowSize, (row + 1) * rowSize)
      rope(query, position, headDim, rotaryDim, ropeTheta)
      rope(key, position, headDim, rotaryDim, ropeTheta)
      const page = Math.floor(position / PAGE_TOKENS)
      const start = (position % PAGE_TOKENS) * rowSize
      pages.keys[page].set(key, start)
      pages.values[page].set(values.subarray(row * rowSize, (row + 1) * rowSize), start)
      const shape = { heads, kvHeads, headDim }
      const out = attention(query, pages.keys, pages.values, PAGE_TOKENS, position + 1, shape)
      attended.set(out, row * heads * headDim)
    }
  }
  return matVec(weights.oProj, sigmoidGate(attended, gates))
}

function linearAttention(
  weights: LinearAttentionWeights,
  x: Float32Array,
  runs: readonly LayerRun[],
  config: ModelConfig,
  nextStates: (LinearState | null)[],
) {
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
  for (const run of runs) {
    const before = run.linear as LinearState
    const rows = (array: Float32Array, size: number) => array.subarray(run.row * size, (run.row + run.tokens) * size)
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
    out.set(gatedDelta(input, recurrent, shape), run.row * valueSize)
    nextStates.push({ conv: mixed.state, recurrent })
  }
  return matVec(weights.outProj, rmsNormGated(out, z, weights.norm, rmsNormEps))
}

/** normed [tokens, hidden], indices [tokens, K] -> [tokens, K, hidden]; each expert is applied once, to all its tokens. */
async function routedExperts(normed: Float32Array, indices: Int32Array, context: LayerContext) {
  const { hiddenSize } = context.config
  const k = context.expertsPerToken
  const placesOf = new Map<number, number[]>() // expert -> places in `indices`
  indices.forEach((index, place) => {
    const places = placesOf.get(index)
    if (places) places.push(place)
    else placesOf.set(index, [place])
  })
  const routed = new Float32Array(indices.length * hiddenSize)
  const wanted = [...placesOf.keys()].sort((a, b) => a - b)
  for await (const [index, weights] of context.takeExperts(wanted)) {
    const places = placesOf.get(index) as number[]
    const x = new Float32Array(places.length * hiddenSize)
    places.forEach((place, i) => {
      const row = Math.floor(place / k)
      x.set(normed.subarray(row * hiddenSize, (row + 1) * hiddenSize), i * hiddenSize)
    })
    const y = expert(weights, x)
    places.forEach((place, i) => {
      routed.set(y.subarray(i * hiddenSize, (i + 1) * hiddenSize), place * hiddenSize)
    })
    await context.phase('experts')
  }
  return routed
}

/** [tokens, heads, 2, headDim] -> [tokens, heads, headDim], the first or second of each pair. */
function takeHeads(pairs: Float32Array, headDim: number, which: 0 | 1): Float32Array {
  return takeColumns(pairs, 2 * headDim, which * headDim, headDim)
}

/** [rows, width] -> [rows, size] from column `start`. */
function takeColumns(x: Float32Array, width: number, start: number, size: number): Float32Array {
  const rows = x.length / width
  const out = new Float32Array(rows * size)
  for (let row = 0; row < rows; row++) out.set(x.subarray(row * width + start, row * width + start + size), row * size)
  return out
}

function add(a: Float32Array, b: Float32Array): Float32Array {
  return a.map((value, i) => value + b[i])
}
