// One decoder layer over the tokens of one or more sequences: h += mixer(rms(h)); h += feedForward(rms(h)). Written beside
// the model's definition; every row is computed the same whichever rows are beside it.
import type { ModelConfig } from '../../model/config.js'
import { ropeFrequencies } from '../../model/ropeFrequencies.js'
import { addBias, sigmoid, sigmoidGate } from '../../ops/activation/reference.js'
import { attention } from '../../ops/attention/reference.js'
import { conv1d } from '../../ops/conv1d/reference.js'
import { embed } from '../../ops/embed/reference.js'
import { deltaGates, gatedDelta } from '../../ops/gatedDelta/reference.js'
import { matVec, takeColumns } from '../../ops/matmul/reference.js'
import { combine, type ExpertWeights, expert } from '../../ops/moe/reference.js'
import { l2Norm, rmsNorm, rmsNormGated } from '../../ops/norm/reference.js'
import { rope } from '../../ops/rope/reference.js'
import { router } from '../../ops/router/reference.js'
import type { LayerProbe } from '../backend.js'
import { PAGE_TOKENS } from '../kvPages.js'
import type {
  AttentionWeights,
  DeltaWeights,
  DraftHeadWeights,
  LayerWeights,
  ModelWeights,
  MoeWeights,
} from './model.js'
import type { LinearState } from './sequence.js'

/** Some tokens of one sequence: rows [row, row + tokens) of the step's arrays. */
interface LayerRun {
  readonly row: number
  readonly tokens: number
  readonly position: number // of the first token
  /** Pages of this layer with room for the tokens; only for full attention. */
  readonly pages: { readonly keys: readonly Float32Array[]; readonly values: readonly Float32Array[] } | null
  /** State before the tokens; only for linear attention. */
  readonly linear: LinearState | null
  /** The tokens after the first may turn out wrong: the state after each of them is wanted. */
  readonly guesses?: boolean
  /** The first row that counts, where earlier ones hold nothing; default 0. */
  readonly firstRow?: number
}

export interface LayerContext {
  readonly config: ModelConfig
  readonly expertsPerToken: number
  /** Gives this layer's experts, each once, in any order. */
  takeExperts(wanted: readonly number[]): AsyncIterable<[number, ExpertWeights]>
  /** Wall time up to here belongs to this phase; also a place to stop. */
  phase(name: 'mixer' | 'router' | 'experts' | 'dense'): Promise<void>
}

/** What the feed-forward block tells; empty arrays where a layer has nothing of the kind. */
export type FeedForwardProbe = Pick<
  LayerProbe,
  'routerLogits' | 'routerIndices' | 'routerWeights' | 'sharedOut' | 'sharedGate' | 'mlpOut'
>

export interface LayerResult {
  readonly probe: Omit<LayerProbe, 'layer'>
  /** Run by run the state after all tokens, or after each where there are guesses; none for full attention. */
  readonly linear: readonly (readonly LinearState[])[]
}

/** hidden [tokens, hidden] */
export async function forwardLayer(
  weights: LayerWeights,
  hidden: Float32Array,
  runs: readonly LayerRun[],
  context: LayerContext,
): Promise<LayerResult> {
  const { config } = context
  const { mixer, feedForward } = weights
  const input = rmsNorm(hidden, weights.inputNorm, config.rmsNormEps)
  const linear: LinearState[][] = []
  const mixerOut =
    mixer.kind === 'full_attention'
      ? attentionMixer(mixer, input, runs, config)
      : deltaMixer(mixer, input, runs, config, linear)
  const middle = add(hidden, mixerOut)
  await context.phase('mixer')

  const normed = rmsNorm(middle, weights.postAttentionNorm, config.rmsNormEps)
  const block =
    feedForward.kind === 'moe'
      ? await moeBlock(feedForward, normed, context)
      : { ...NOTHING, mlpOut: expert(feedForward.expert, normed, feedForward.shape.activation) }
  const out = add(middle, block.mlpOut)
  await context.phase(feedForward.kind === 'moe' ? 'experts' : 'dense')
  return { probe: { mixerOut, normed, ...block, out }, linear }
}

const NOTHING = {
  routerLogits: new Float32Array(0),
  routerIndices: new Int32Array(0),
  routerWeights: new Float32Array(0),
  sharedOut: new Float32Array(0),
  sharedGate: new Float32Array(0),
}

/**
 * Full attention of one layer: projections, norms and angles of queries and keys, keys and values into their pages, softmax
 * attention, the output's gate and projection. x [tokens, hidden] -> [tokens, hidden]
 */
function attentionMixer(
  weights: AttentionWeights,
  x: Float32Array,
  runs: readonly LayerRun[],
  config: ModelConfig,
): Float32Array {
  const { numHeads: heads, numKvHeads: kvHeads, headDim, rmsNormEps } = config
  const { outputGate, rope: ropeShape, window } = weights.shape
  const projected = addBias(matVec(weights.qProj, x), weights.qBias) // [tokens, heads, 1 or 2, headDim]
  const pairs = (which: 0 | 1) => takeColumns(projected, 2 * headDim, which * headDim, headDim)
  const plain = outputGate ? pairs(0) : projected
  const queries = weights.qNorm ? rmsNorm(plain, weights.qNorm, rmsNormEps) : plain // [tokens, heads, headDim]
  storeKeyValues(weights, x, runs, config)
  const attended = new Float32Array(queries.length)
  const angles = ropeFrequencies(ropeShape)
  for (const run of runs) {
    const pages = run.pages as NonNullable<LayerRun['pages']>
    for (let t = 0; t < run.tokens; t++) {
      const row = run.row + t
      const position = run.position + t
      const query = queries.subarray(row * heads * headDim, (row + 1) * heads * headDim)
      rope(query, position, headDim, angles)
      const shape = { heads, kvHeads, headDim, window, firstRow: run.firstRow }
      const out = attention(query, pages.keys, pages.values, PAGE_TOKENS, position + 1, shape, weights.sinks)
      attended.set(out, row * heads * headDim)
    }
  }
  const out = outputGate ? sigmoidGate(attended, pairs(1)) : attended
  return addBias(matVec(weights.oProj, out), weights.oBias)
}

/** Puts the keys and values of x [tokens, hidden] into their pages. */
function storeKeyValues(
  weights: AttentionWeights,
  x: Float32Array,
  runs: readonly LayerRun[],
  config: ModelConfig,
): void {
  const { numKvHeads: kvHeads, headDim, rmsNormEps } = config
  const projected = addBias(matVec(weights.kProj, x), weights.kBias)
  const keys = weights.kNorm ? rmsNorm(projected, weights.kNorm, rmsNormEps) : projected // [tokens, kvHeads, headDim]
  const values = addBias(matVec(weights.vProj, x), weights.vBias) // [tokens, kvHeads, headDim]
  const rowSize = kvHeads * headDim
  const angles = ropeFrequencies(weights.shape.rope)
  for (const run of runs) {
    const pages = run.pages as NonNullable<LayerRun['pages']>
    for (let t = 0; t < run.tokens; t++) {
      const row = run.row + t
      const position = run.position + t
      const key = keys.subarray(row * rowSize, (row + 1) * rowSize)
      rope(key, position, headDim, angles)
      const page = Math.floor(position / PAGE_TOKENS)
      const start = (position % PAGE_TOKENS) * rowSize
      pages.keys[page].set(key, start)
      pages.values[page].set(values.subarray(row * rowSize, (row + 1) * rowSize), start)
    }
  }
}

/**
 * The gated delta net of one layer: projections, a short convolution, the delta rule, a gated norm, the output projection.
 * x [tokens, hidden] -> [tokens, hidden]; states after the tokens go into `nextStates`, a list for each run.
 */
function deltaMixer(
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

/**
 * The MoE block of one layer: router, shared expert, and the routed experts, each applied once to all its tokens.
 * normed [tokens, hidden]
 */
async function moeBlock(weights: MoeWeights, normed: Float32Array, context: LayerContext): Promise<FeedForwardProbe> {
  const { config, expertsPerToken } = context
  const { shape, shared } = weights
  const routerLogits = addBias(matVec(weights.router, normed), weights.routerBias)
  const routing = router(routerLogits, config.numExperts, expertsPerToken, shape.router, weights.selectionBias)
  await context.phase('router')

  const sharedGate = shared?.gate ? matVec(shared.gate, normed).map(sigmoid) : null
  const sharedOut = shared && expert(shared.expert, normed, shape.activation)
  const routed = await routedExperts(weights, normed, routing.indices, context)
  const tokens = normed.length / config.hiddenSize
  return {
    routerLogits,
    routerIndices: routing.indices,
    routerWeights: routing.weights,
    sharedOut: sharedOut ?? NOTHING.sharedOut,
    sharedGate: sharedGate ?? NOTHING.sharedGate,
    mlpOut: combine(routed, routing.weights, sharedOut, sharedGate, tokens),
  }
}

/** indices [tokens, K] -> [tokens, K, hidden] */
async function routedExperts(
  { shape }: MoeWeights,
  normed: Float32Array,
  indices: Int32Array,
  context: LayerContext,
): Promise<Float32Array> {
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
    const y = expert(weights, x, shape.activation)
    places.forEach((place, i) => {
      routed.set(y.subarray(i * hiddenSize, (i + 1) * hiddenSize), place * hiddenSize)
    })
    await context.phase('experts')
  }
  return routed
}

// The head that guesses ahead: it joins a token's embedding with the model's hidden row before it, and runs one decoder layer
// over that. Its keys and values of tokens that are known need no more than the layer's first projections.

/** tokens, and before [tokens, hidden]: the final-norm rows of the tokens before them -> the layer's input [tokens, hidden] */
export function headInput(
  { embed: table, draftHead }: ModelWeights,
  tokens: readonly number[],
  before: Float32Array,
  { hiddenSize, rmsNormEps }: ModelConfig,
): Float32Array {
  const { fc, embeddingNorm, hiddenNorm } = draftHead as DraftHeadWeights
  const embedded = rmsNorm(embed(table, tokens), embeddingNorm, rmsNormEps)
  const hidden = rmsNorm(before, hiddenNorm, rmsNormEps)
  const joined = new Float32Array(2 * embedded.length) // [tokens, 2, hidden]
  for (let t = 0; t < tokens.length; t++) {
    joined.set(embedded.subarray(t * hiddenSize, (t + 1) * hiddenSize), 2 * t * hiddenSize)
    joined.set(hidden.subarray(t * hiddenSize, (t + 1) * hiddenSize), (2 * t + 1) * hiddenSize)
  }
  return matVec(fc, joined)
}

/** Puts the head's keys and values of known tokens into their pages. */
export function storeHeadRows(
  weights: ModelWeights,
  tokens: readonly number[],
  before: Float32Array, // [tokens, hidden]
  run: LayerRun,
  config: ModelConfig,
): void {
  const { layer } = weights.draftHead as DraftHeadWeights
  const input = rmsNorm(headInput(weights, tokens, before, config), layer.inputNorm, config.rmsNormEps)
  storeKeyValues(layer.mixer as AttentionWeights, input, [run], config)
}

function add(a: Float32Array, b: Float32Array): Float32Array {
  return a.map((value, i) => value + b[i])
}
