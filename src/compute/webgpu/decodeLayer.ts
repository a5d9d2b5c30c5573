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
import { expertMatVecOp, matVecOp } from './matVec.js'
import { type Op, sequence } from './op.js'
import type { LayerParts } from './promptLayer.js'
import type { LayerWeights } from './residentWeights.js'
import type { SlotMatrix } from './slotLayout.js'
import { topKOp } from './topK.js'

export interface DecodeLayer {
  /** Up to the router's logits and the shared expert's gate and up. */
  readonly before: Op
  /** The router's choice: sets the miss flag. */
  readonly choose: Op
  /** Shared and routed experts, added to hidden. */
  readonly experts: Op
}

export interface DecodeOptions {
  readonly splits: number
  readonly attentionParts: GPUBuffer // [tokens, heads, splits, headDim + 2]
}

export async function decodeLayer(
  parts: LayerParts,
  weights: LayerWeights,
  layer: number,
  options: DecodeOptions,
): Promise<DecodeLayer> {
  const { gpu, config, space, slots, layout } = parts
  const { status, hidden, mixed, logits, sharedGateUp, sharedOut } = space
  const { hiddenSize, rmsNormEps: eps, numExperts, sharedExpertIntermediateSize: sharedSize } = config
  const postNorm = { weight: weights.postNorm, eps }
  const outProj = { status, outStride: hiddenSize, add: true, label: 'outProj' }
  const router = { status, outStride: numExperts + 1, norm: postNorm, exact: true, label: 'router' }
  const gateUp = { status, outStride: 2 * sharedSize, norm: postNorm, label: 'sharedGateUp' }
  const sharedDown = { status, outStride: hiddenSize, swiglu: true, label: 'sharedDown' }
  const sharedSlot = slots.sharedSlot(layer)
  const [mixer, out, route, choose, experts, expertDown] = await Promise.all([
    mixerOps(parts, weights, layer, options),
    matVecOp(gpu, weights.outProj, mixed.values, hidden, outProj),
    matVecOp(gpu, weights.router, hidden, logits, router),
    topKOp(gpu, space.shape, { ...space, slotTable: slots.table }, layer, { sharedSlot }),
    expertOps(parts, weights, layer),
    expertDownOp(gpu, layout, slots.buffer(layer), space, sharedSlot !== null),
  ])
  if (sharedSlot !== null) {
    return { before: sequence([mixer, out, route]), choose, experts: sequence([experts, expertDown]) }
  }
  const [shared, down] = await Promise.all([
    matVecOp(gpu, weights.sharedGateUp, hidden, sharedGateUp, gateUp),
    matVecOp(gpu, weights.sharedDown, sharedGateUp, sharedOut, sharedDown),
  ])
  return { before: sequence([mixer, out, route, shared]), choose, experts: sequence([down, experts, expertDown]) }
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
      const pool = slots.buffer(layer)
      return expertMatVecOp(gpu, pool, stride, format, cols, segments, hidden, mixing, ranks, expertGateUp, options)
    }),
  )
}

async function all(ops: readonly Promise<Op>[]): Promise<Op> {
  return sequence(await Promise.all(ops))
}
