// The ops of one layer for any number of tokens: prompts, probes, and everything else that is not decoding.
import type { ModelConfig } from '../../model/config.js'
import type { Activation } from '../../model/layers.js'
import { addNormOp } from './addNorm.js'
import { attentionOp } from './attention.js'
import { attentionInputOp } from './attentionInput.js'
import { attentionColumns } from './attentionShape.js'
import { combineOp } from './combine.js'
import { conv1dOp } from './conv1d.js'
import type { ExpertSlots } from './expertSlots.js'
import { gatedDeltaOp } from './gatedDelta.js'
import type { GpuContext } from './gpuContext.js'
import { groupTokensOp, maxTiles, pairsAt } from './groupTokens.js'
import type { HostExperts } from './hostExperts.js'
import type { KvPool } from './kvPool.js'
import type { BlockWeights, LayerWeights, MoeWeights } from './layerWeights.js'
import { linearColumns } from './linearShape.js'
import { groupedMatMulOp, matMulOp } from './matMul.js'
import type { StepSlots } from './noExperts.js'
import { type Op, sequence } from './op.js'
import { quantizeOp } from './quantize.js'
import { rmsNormGatedOp } from './rmsNormGated.js'
import { routerOp } from './router.js'
import type { SlotLayout, SlotMatrix } from './slotLayout.js'
import type { StatePool } from './statePool.js'
import { swiGluOp } from './swiGlu.js'
import type { Workspace } from './workspace.js'

export interface PromptLayer {
  /** hidden += mlpOut of the layer before (not for the first, nor for a head's), norm, mixer → mixerOut. */
  readonly mixer: Op
  readonly feedForward: PromptMoe | PromptDense
}

export interface PromptDense {
  readonly kind: 'dense'
  /** hidden += mixerOut, norm, feed-forward block → mlpOut. */
  readonly block: Op
}

export interface PromptMoe {
  readonly kind: 'moe'
  readonly place: number // among the layers with experts
  /** hidden += mixerOut, norm, router, top K, shared expert. */
  readonly router: Op
  /** What this layer would choose from the rows that a layer before it has so far: hidden += mixerOut, norm, router, top K. */
  readonly early: Op
  /** The same as `router` after the `early` of another layer, which has added mixerOut. */
  readonly routerAfterEarly: Op
  /** The experts in the slot table, or those of the present wave. */
  readonly experts: Op
  readonly expertsOfWave: Op
  /** mlpOut from all expert rows. */
  readonly combine: Op
}

export interface LayerParts {
  readonly gpu: GpuContext
  readonly config: ModelConfig
  readonly space: Workspace
  readonly states: StatePool
  readonly kv: KvPool
  readonly slots: StepSlots
  readonly experts: SlotExperts | null // null: the model has none
  readonly host: HostExperts | null // computes experts that are not in slots; null: they are brought
}

/** What kernels have to know of experts. */
export interface SlotExperts {
  readonly slots: ExpertSlots
  readonly layouts: readonly SlotLayout[] // per layer that has experts
}

export function expertsOf({ experts }: LayerParts): SlotExperts {
  if (experts === null) throw new Error('a layer has experts and the model has none')
  return experts
}

export async function promptLayer(parts: LayerParts, weights: LayerWeights, layer: number): Promise<PromptLayer> {
  const { gpu, config, space } = parts
  const { hiddenSize, rmsNormEps } = config
  const norm = (weight: GPUBuffer, delta: GPUBuffer | null) =>
    addNormOp(gpu, { weight, delta, hidden: space.hidden, out: space.normed.values }, hiddenSize, rmsNormEps)
  const { mixer } = weights
  const isFirst = layer === 0 || layer === config.numLayers // the head for drafts has an input of its own
  const [mixerOp, feedForward] = await Promise.all([
    all([
      norm(weights.inputNorm, isFirst ? null : space.mlpOut),
      mixerOps(parts, mixer, layer),
      matMulOp(gpu, mixer.outProj, space.mixed, space.mixerOut, {
        ...productOf(space, hiddenSize, 'outProj'),
        bias: mixer.kind === 'full_attention' ? mixer.outBias : null,
      }),
    ]),
    feedForwardOps(parts, weights, norm(weights.postNorm, space.mixerOut), norm(weights.postNorm, null)),
  ])
  return { mixer: mixerOp, feedForward }
}

async function feedForwardOps(
  parts: LayerParts,
  { feedForward }: LayerWeights,
  norm: Promise<Op>, // after adding mixerOut
  normAlone: Promise<Op>,
): Promise<PromptMoe | PromptDense> {
  const { gpu, config, space } = parts
  if (feedForward.kind === 'dense') {
    const { block, shape } = feedForward
    return { kind: 'dense', block: await all([norm, blockOps(parts, block, shape.activation, space.mlpOut)]) }
  }
  const { place, shape, shared, selectionBias } = feedForward
  const { slots } = expertsOf(parts)
  const product = productOf(space, space.shape.logitsStride, 'router')
  const choose = all([
    matMulOp(gpu, feedForward.router, space.normed, space.logits, {
      ...product,
      bias: feedForward.routerBias,
      exact: true,
    }),
    routerOp(gpu, space.shape, shape, { ...space, selectionBias, slotTable: slots.table }, place, null),
  ])
  const sharedExpert = shared === null ? [] : [blockOps(parts, shared, shape.activation, space.sharedOut)]
  const [router, early, routerAfterEarly, experts, expertsOfWave, combine] = await Promise.all([
    all([norm, choose, ...sharedExpert]),
    all([norm, choose]),
    all([normAlone, choose, ...sharedExpert]),
    expertOps(parts, feedForward, slots.table),
    expertOps(parts, feedForward, slots.waveTable),
    combineOp(
      gpu,
      space.shape,
      shape.shared,
      { ...space, sharedRows: space.sharedOut, out: space.mlpOut },
      config.hiddenSize,
    ),
  ])
  return { kind: 'moe', place, router, early, routerAfterEarly, experts, expertsOfWave, combine }
}

async function all(ops: readonly Promise<Op>[]): Promise<Op> {
  return sequence(await Promise.all(ops))
}

function productOf({ step, shape }: Workspace, outStride: number, label: string) {
  return { step, maxTokens: shape.maxTokens, outStride, label }
}

function mixerOps(parts: LayerParts, weights: LayerWeights['mixer'], layer: number): Promise<Op> {
  const { gpu, config, space, states, kv } = parts
  const { step, tokenInfo, runInfo, mixerIn, convolved, queries, angles } = space
  const mixed = space.mixed.values
  if (weights.kind === 'linear_attention') {
    const { taps, gates, norm } = weights
    const product = productOf(space, linearColumns(config).stride, 'inProj')
    return all([
      matMulOp(gpu, weights.inProj, space.normed, mixerIn, product),
      conv1dOp(gpu, config, { taps, tokenInfo, runInfo, inputs: mixerIn, out: convolved }, states, layer),
      gatedDeltaOp(gpu, config, { gates, runInfo, inputs: mixerIn, convolved, out: mixed }, states, layer),
      rmsNormGatedOp(gpu, config, norm, mixerIn, mixed),
    ])
  }
  const { shape, inBias: bias, qkNorms: norms, sinks } = weights
  const product = { ...productOf(space, attentionColumns(config, shape).stride, 'inProj'), bias }
  const input = { norms, tokenInfo, angles, inputs: mixerIn, queries }
  const attend = { step, tokenInfo, inputs: mixerIn, queries, sinks, out: mixed }
  return all([
    matMulOp(gpu, weights.inProj, space.normed, mixerIn, product),
    attentionInputOp(gpu, config, shape, input, kv, layer),
    attentionOp(gpu, config, shape, attend, kv, layer, layer === config.numLayers),
  ])
}

/** A feed-forward block that all tokens go through: a shared expert, or a dense layer's. */
function blockOps(
  { gpu, config, space }: LayerParts,
  { gateUp, down, width }: BlockWeights,
  activation: Activation,
  out: GPUBuffer,
): Promise<Op> {
  const { denseGateUp, denseAct } = space
  return all([
    matMulOp(gpu, gateUp, space.normed, denseGateUp, productOf(space, 2 * width, 'dense')),
    swiGluOp(gpu, denseGateUp, denseAct.values, width, 1, activation),
    matMulOp(gpu, down, denseAct, out, productOf(space, config.hiddenSize, 'dense')),
  ])
}

/** Every expert of `table` applied to its tokens: gate and up, activation, down → expertRows. */
async function expertOps(parts: LayerParts, weights: MoeWeights, table: GPUBuffer): Promise<Op> {
  const { gpu, config, space } = parts
  const { shape, step, groups, choice, normed, expertGateUp, expertAct, expertRows } = space
  const { place } = weights
  const { activation } = weights.shape
  const { slots, layouts } = expertsOf(parts)
  const layout = layouts[place]
  const { gate, up, down } = layout
  const pool = slots.pool(place)
  const width = config.moeIntermediateSize
  const k = shape.k
  const common = {
    step,
    groups,
    pairsAt: pairsAt(shape),
    pairTile: shape.pairTile,
    slotStride: layout.stride,
    maxTiles: (tokens: number) => maxTiles(shape, tokens),
    label: 'experts',
  }
  const segment = (matrix: SlotMatrix, out: number) => ({ ...matrix, out })
  const isFast = (matrix: SlotMatrix) => gpu.fast && matrix.format.bits < 16
  const ops: Promise<Op>[] = [groupTokensOp(gpu, shape, step, table, choice, groups, place)]
  const sameFormat = JSON.stringify(gate.format) === JSON.stringify(up.format)
  for (const segments of sameFormat
    ? [[segment(gate, 0), segment(up, width)]]
    : [[segment(gate, 0)], [segment(up, width)]]) {
    const [{ format, cols }] = segments
    if (isFast(segments[0])) ops.push(quantizeOp(gpu, normed, config.hiddenSize, format.bits))
    const options = { ...common, outStride: 2 * width, pairsPerRow: k }
    ops.push(groupedMatMulOp(gpu, pool, format, cols, segments, normed, expertGateUp, options))
  }
  ops.push(
    isFast(down)
      ? quantizeOp(gpu, expertAct, width, down.format.bits, k, { gateUp: expertGateUp, activation })
      : swiGluOp(gpu, expertGateUp, expertAct.values, width, k, activation),
  )
  const options = { ...common, outStride: config.hiddenSize, pairsPerRow: 1 }
  ops.push(groupedMatMulOp(gpu, pool, down.format, down.cols, [segment(down, 0)], expertAct, expertRows, options))
  return all(ops)
}
