// The ops of one layer for single tokens. Norms are part of the products that need them, the residual adds part of those
// that make them, and the shared expert is one more expert where it has their shape: a linear layer is seven dependent
// dispatches, a full-attention layer nine.
import { attentionOp } from './attention.js'
import { attentionInputOp } from './attentionInput.js'
import { attentionReduceOp } from './attentionReduce.js'
import { attentionColumns } from './attentionShape.js'
import { expertDownOp } from './expertDown.js'
import { linearColumns } from './linearShape.js'
import { linearStepOp } from './linearStep.js'
import type { MatrixPart } from './matrixWeights.js'
import { expertMatVecOp, matVecOp } from './matVec.js'
import { type Op, sequence } from './op.js'
import type { LayerParts } from './promptLayer.js'
import type { LayerWeights, ResidentWeights } from './residentWeights.js'
import type { SlotMatrix } from './slotLayout.js'
import { topKOp } from './topK.js'

export interface DecodeLayer {
  /** Up to where the router and the shared expert begin. */
  readonly mixer: Op
  readonly routing: Routing
  /** The same, with guesses of what the next layers will choose. */
  readonly routingAhead: Routing
  /** Shared and routed experts, added to hidden. */
  readonly experts: Op
}

export interface Routing {
  /** The router's logits and its choice: sets the miss flag. */
  readonly route: Op
  /** Only the choice again, after a miss. */
  readonly choose: Op
  /** Layers that guesses are made for. */
  readonly ahead: number
}

export interface DecodeOptions {
  readonly splits: number
  readonly attentionParts: GPUBuffer // [tokens, heads, splits, headDim + 2]
  readonly ahead: number // layers whose choice is guessed
}

export async function decodeLayer(
  parts: LayerParts,
  allWeights: ResidentWeights,
  layer: number,
  options: DecodeOptions,
): Promise<DecodeLayer> {
  const { gpu, config, space, slots, layout } = parts
  const weights = allWeights.layers[layer]
  const { status, hidden, mixed, sharedGateUp, sharedOut } = space
  const { hiddenSize, rmsNormEps: eps, sharedExpertIntermediateSize: sharedSize } = config
  const postNorm = { weight: weights.postNorm, eps }
  const outProj = { status, outStride: hiddenSize, add: true, label: 'outProj' }
  const gateUp = { status, outStride: 2 * sharedSize, norm: postNorm, label: 'sharedGateUp' }
  const sharedDown = { status, outStride: hiddenSize, swiglu: true, label: 'sharedDown' }
  const isApart = slots.sharedSlot(layer) === null
  const none: Op = () => {}
  const [mixer, out, routing, experts, expertDown, shared, down] = await Promise.all([
    mixerOps(parts, weights, layer, options),
    matVecOp(gpu, weights.outProj, mixed.values, hidden, outProj),
    routingOps(parts, allWeights, layer, options),
    expertOps(parts, weights, layer),
    expertDownOp(gpu, layout, slots.pool(layer), space, !isApart),
    isApart ? matVecOp(gpu, weights.sharedGateUp, hidden, sharedGateUp, gateUp) : none,
    isApart ? matVecOp(gpu, weights.sharedDown, sharedGateUp, sharedOut, sharedDown) : none,
  ])
  return {
    mixer: sequence([mixer, out, shared]),
    ...routing,
    experts: sequence([down, experts, expertDown]),
  }
}

async function routingOps(
  parts: LayerParts,
  allWeights: ResidentWeights,
  layer: number,
  options: DecodeOptions,
): Promise<Pick<DecodeLayer, 'routing' | 'routingAhead'>> {
  const { gpu, config, space, slots } = parts
  const { status, hidden, logits } = space
  const { numLayers: layers } = config
  const weights = allWeights.layers[layer]
  const sharedSlot = slots.sharedSlot(layer)
  const spareSlot = slots.spareSlot(layer)
  const leftRow = layers + options.ahead
  const norm = { weight: weights.postNorm, eps: config.rmsNormEps }
  const build = async (router: readonly MatrixPart[], ahead: number): Promise<Routing> => {
    const product = { status, outStride: space.shape.logitsStride, norm, exact: true, label: 'router' }
    const buffers = { ...space, slotTable: slots.table }
    const [logitsOp, choose] = await Promise.all([
      matVecOp(gpu, router, hidden, logits, product),
      topKOp(gpu, space.shape, buffers, layer, { sharedSlot, ahead, layers, spareSlot, leftRow }),
    ])
    return { route: sequence([logitsOp, choose]), choose, ahead }
  }
  const routing = await build(weights.router, 0)
  const ahead = Math.min(options.ahead, layers - 1 - layer)
  const wider = ahead > 0 ? allWeights.routers.withNext(layer, ahead) : null
  return { routing, routingAhead: wider === null ? routing : await build([wider], ahead) }
}

function mixerOps(parts: LayerParts, weights: LayerWeights, layer: number, options: DecodeOptions): Promise<Op> {
  const { gpu, config, space, states, kv } = parts
  const { step, status, tokenInfo, hidden, mixerIn, queries, angles, mixed } = space
  const norm = { weight: weights.inputNorm, eps: config.rmsNormEps }
  const project = (outStride: number) =>
    matVecOp(gpu, weights.inProj, hidden, mixerIn, { status, outStride, norm, label: 'inProj' })
  if (weights.kind === 'linear_attention') {
    const buffers = { constants: weights.stepConstants, tokenInfo, status, inputs: mixerIn, out: mixed.values }
    return all([project(linearColumns(config).stride), linearStepOp(gpu, config, buffers, states, layer)])
  }
  const { splits, attentionParts } = options
  const input = { norms: weights.qkNorms, tokenInfo, angles, inputs: mixerIn, queries }
  const attend = { step, tokenInfo, inputs: mixerIn, queries, parts: attentionParts, out: mixed.values }
  return all([
    project(attentionColumns(config).stride),
    attentionInputOp(gpu, config, input, kv, layer),
    attentionOp(gpu, config, attend, kv, layer, splits),
    attentionReduceOp(gpu, config, attentionParts, mixerIn, mixed.values, splits),
  ])
}

async function expertOps(parts: LayerParts, weights: LayerWeights, layer: number): Promise<Op> {
  const { gpu, config, space, slots, layout } = parts
  const { gate, up, stride } = layout
  const { status, hidden, mixing, expertGateUp, shape } = space
  const width = config.moeIntermediateSize
  const ranks = shape.k + (slots.sharedSlot(layer) === null ? 0 : 1)
  const norm = { weight: weights.postNorm, eps: config.rmsNormEps }
  const options = { status, outStride: 2 * width, norm, label: 'expertGateUp' }
  const at = (matrix: SlotMatrix, out: number) => ({ ...matrix, out })
  const isSame = JSON.stringify(gate.format) === JSON.stringify(up.format)
  const groups = isSame ? [[at(gate, 0), at(up, width)]] : [[at(gate, 0)], [at(up, width)]]
  return all(
    groups.map(segments => {
      const [{ format, cols }] = segments
      const pool = slots.pool(layer)
      return expertMatVecOp(gpu, pool, stride, format, cols, segments, hidden, mixing, ranks, expertGateUp, options)
    }),
  )
}

async function all(ops: readonly Promise<Op>[]): Promise<Op> {
  return sequence(await Promise.all(ops))
}
