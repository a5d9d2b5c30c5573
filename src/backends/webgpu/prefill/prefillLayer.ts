// The ops of one layer for any number of tokens: prompts, probes, and everything else that is not decoding.
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { type Op, sequence } from '../../../gpu/device/op.js'
import type { KvPool } from '../../../gpu/memory/kvPool.js'
import type { SlotLayout } from '../../../gpu/memory/slotLayout.js'
import type { StatePool } from '../../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../../model/config.js'
import type { Activation, AttentionShape } from '../../../model/layers.js'
import { linearColumns } from '../../../model/linearShape.js'
import { swiGluOp } from '../../../ops/activation/swiGlu.gpu.js'
import { type AttentionBuffers, attentionOp } from '../../../ops/attention/attention.gpu.js'
import { attentionInputOp } from '../../../ops/attention/attentionInput.gpu.js'
import { attentionColumns } from '../../../ops/attention/attentionShape.gpu.js'
import { isForTensorAttention, tensorAttentionOp } from '../../../ops/attention/tensorAttention.gpu.js'
import { conv1dOp } from '../../../ops/conv1d/conv1d.gpu.js'
import { gatedDeltaOp } from '../../../ops/gatedDelta/gatedDelta.gpu.js'
import { halfGluOp } from '../../../ops/matmul/halfRows.gpu.js'
import { matMulOp, takesHalves } from '../../../ops/matmul/matMul.gpu.js'
import { combineOp } from '../../../ops/moe/combine.gpu.js'
import { areForTensors } from '../../../ops/moe/tensorExperts.gpu.js'
import { addNormOp } from '../../../ops/norm/addNorm.gpu.js'
import { rmsNormGatedOp } from '../../../ops/norm/rmsNormGated.gpu.js'
import { routerOp } from '../../../ops/router/router.gpu.js'
import type { HostExperts } from '../experts/cpuExperts.js'
import type { StepSlots } from '../experts/residency.js'
import type { SlotTable } from '../experts/slotTable.js'
import type { BlockWeights, LayerWeights } from '../memory/layerWeights.js'
import type { Workspace } from '../memory/workspace.js'
import { promptExpertsOp } from './prefillExperts.js'

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
  readonly table: SlotTable
  readonly layouts: readonly SlotLayout[] // per layer that has experts
}

export function expertsOf({ experts }: LayerParts): SlotExperts {
  if (experts === null) throw new Error('a layer has experts and the model has none')
  return experts
}

export async function promptLayer(parts: LayerParts, weights: LayerWeights, layer: number): Promise<PromptLayer> {
  const { gpu, config, space } = parts
  const { hiddenSize } = config
  const { mixer } = weights
  const isFirst = layer === 0 || layer === config.numLayers // the head for drafts has an input of its own
  const inBias = mixer.kind === 'full_attention' ? mixer.inBias : null
  const hasHalves = takesHalves(gpu, mixer.inProj, { bias: inBias, maxTokens: space.shape.maxTokens })
  const [mixerOp, feedForward] = await Promise.all([
    all([
      normOf(parts, weights.inputNorm, isFirst ? null : space.mlpOut, hasHalves ? 'halves' : 'values'),
      mixerOps(parts, mixer, layer, hasHalves),
      matMulOp(gpu, mixer.outProj, space.mixed, space.mixerOut, {
        ...productOf(space, hiddenSize, 'outProj'),
        bias: mixer.kind === 'full_attention' ? mixer.outBias : null,
        hasHalves: leavesHalves(parts, mixer),
      }),
    ]),
    feedForwardOps(parts, weights),
  ])
  return { mixer: mixerOp, feedForward }
}

/** hidden += delta, and its norm, as those who take it want it. */
function normOf(
  { gpu, config, space }: LayerParts,
  weight: GPUBuffer,
  delta: GPUBuffer | null,
  as: 'values' | 'halves' | 'both',
) {
  const { hidden, normed } = space
  const buffers = {
    ...{ weight, delta, hidden },
    out: as === 'halves' ? null : normed.values,
    halves: as === 'values' ? null : normed.packed,
  }
  return addNormOp(gpu, buffers, config.hiddenSize, config.rmsNormEps)
}

/** Whether a mixer leaves half floats for its output projection. */
function leavesHalves({ gpu, space }: LayerParts, mixer: LayerWeights['mixer']): boolean {
  return mixer.kind === 'linear_attention' && takesHalves(gpu, mixer.outProj, { maxTokens: space.shape.maxTokens })
}

async function feedForwardOps(
  parts: LayerParts,
  { feedForward, postNorm }: LayerWeights,
): Promise<PromptMoe | PromptDense> {
  const { gpu, config, space } = parts
  const { maxTokens } = space.shape
  if (feedForward.kind === 'dense') {
    const { block, shape } = feedForward
    const hasHalves = takesHalves(gpu, block.gateUp, { maxTokens })
    const norm = normOf(parts, postNorm, space.mixerOut, hasHalves ? 'both' : 'values')
    return {
      kind: 'dense',
      block: await all([norm, blockOps(parts, block, shape.activation, space.mlpOut, hasHalves)]),
    }
  }
  const { place, shape, shared, selectionBias } = feedForward
  const { table, layouts } = expertsOf(parts)
  const { activation } = shape
  const layout = layouts[place]
  const onTensors = areForTensors(gpu, layout)
  const hasHalves = onTensors && (shared === null || takesHalves(gpu, shared.gateUp, { maxTokens }))
  const own = { gpu, config, space, layout, pool: table.pool(place), place, activation, hasHalves }
  const as = hasHalves ? 'both' : 'values' // the router takes values
  const norm = normOf(parts, postNorm, space.mixerOut, as)
  const normAlone = normOf(parts, postNorm, null, as)
  const product = productOf(space, space.shape.logitsStride, 'routerLogits')
  const choose = all([
    matMulOp(gpu, feedForward.router, space.normed, space.logits, {
      ...product,
      bias: feedForward.routerBias,
      exact: true,
    }),
    routerOp(gpu, space.shape, shape, { ...space, selectionBias, slotTable: table.rows }, place, null),
  ])
  const sharedExpert = shared === null ? [] : [blockOps(parts, shared, activation, space.sharedOut, hasHalves)]
  const [router, early, routerAfterEarly, experts, expertsOfWave, combine] = await Promise.all([
    all([norm, choose, ...sharedExpert]),
    all([norm, choose]),
    all([normAlone, choose, ...sharedExpert]),
    promptExpertsOp(own, table.rows),
    promptExpertsOp(own, table.waveRows),
    combineOp(
      gpu,
      space.shape,
      shape.shared,
      { ...space, sharedRows: space.sharedOut, out: space.mlpOut },
      config.hiddenSize,
      onTensors ? space : null,
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

function mixerOps(parts: LayerParts, weights: LayerWeights['mixer'], layer: number, hasHalves: boolean): Promise<Op> {
  const { gpu, config, space, states, kv } = parts
  const { step, tokenInfo, runInfo, mixerIn, convolved, queries, angles } = space
  const mixed = space.mixed.values
  if (weights.kind === 'linear_attention') {
    const { taps, gates, norm } = weights
    const product = { ...productOf(space, linearColumns(config).stride, 'inProj'), hasHalves }
    return all([
      matMulOp(gpu, weights.inProj, space.normed, mixerIn, product),
      conv1dOp(gpu, config, { taps, tokenInfo, runInfo, inputs: mixerIn, out: convolved }, states, layer),
      gatedDeltaOp(gpu, config, { gates, runInfo, inputs: mixerIn, convolved, out: mixed }, states, layer),
      rmsNormGatedOp(gpu, config, norm, mixerIn, mixed, leavesHalves(parts, weights) ? space.mixed.packed : null),
    ])
  }
  const { shape, inBias: bias, qkNorms: norms, sinks } = weights
  const product = { ...productOf(space, attentionColumns(config, shape).stride, 'inProj'), bias, hasHalves }
  const input = { norms, tokenInfo, angles, inputs: mixerIn, queries }
  const attend = { step, tokenInfo, inputs: mixerIn, queries, sinks, out: mixed }
  return all([
    matMulOp(gpu, weights.inProj, space.normed, mixerIn, product),
    attentionInputOp(gpu, config, shape, input, kv, layer),
    promptAttentionOp(parts, shape, attend, layer),
  ])
}

/** The head for drafts may not have seen a sequence from its beginning, which matrix units know nothing of. */
export function promptAttentionOp(
  { gpu, config, space, kv }: Pick<LayerParts, 'gpu' | 'config' | 'space' | 'kv'>,
  shape: AttentionShape,
  buffers: AttentionBuffers,
  layer: number,
): Promise<Op> {
  const isHead = layer === config.numLayers
  return !isHead && isForTensorAttention(gpu, config)
    ? tensorAttentionOp(gpu, config, shape, { ...buffers, runInfo: space.runInfo }, kv, layer)
    : attentionOp(gpu, config, shape, buffers, kv, layer, isHead)
}

/** A feed-forward block that all tokens go through: a shared expert, or a dense layer's. */
function blockOps(
  { gpu, config, space }: LayerParts,
  { gateUp, down, width }: BlockWeights,
  activation: Activation,
  out: GPUBuffer,
  hasHalves: boolean, // of `normed`
): Promise<Op> {
  const { denseGateUp, denseAct, shape } = space
  const isHalf = takesHalves(gpu, down, { maxTokens: shape.maxTokens })
  return all([
    matMulOp(gpu, gateUp, space.normed, denseGateUp, { ...productOf(space, 2 * width, 'dense'), hasHalves }),
    isHalf
      ? halfGluOp(gpu, denseGateUp, denseAct.packed, width, activation)
      : swiGluOp(gpu, denseGateUp, denseAct.values, width, 1, activation),
    matMulOp(gpu, down, denseAct, out, { ...productOf(space, config.hiddenSize, 'dense'), hasHalves: isHalf }),
  ])
}
