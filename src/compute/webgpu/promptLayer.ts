// The ops of one layer for any number of tokens: prompts, probes, and everything else that is not decoding.
import type { ModelConfig } from '../../model/config.js'
import { addNormOp } from './addNorm.js'
import { attentionOp } from './attention.js'
import { attentionInputOp } from './attentionInput.js'
import { attentionColumns } from './attentionShape.js'
import { combineOp } from './combine.js'
import { convOp } from './conv.js'
import type { ExpertSlots } from './expertSlots.js'
import { gatedDeltaOp } from './gatedDelta.js'
import { gatedNormOp } from './gatedNorm.js'
import type { GpuContext } from './gpuContext.js'
import { groupTokensOp, maxTiles, pairsAt } from './groupTokens.js'
import type { HostExperts } from './hostExperts.js'
import type { KvPool } from './kvPool.js'
import { linearColumns } from './linearShape.js'
import { groupedMatMulOp, matMulOp } from './matMul.js'
import { type Op, sequence } from './op.js'
import { quantizeOp } from './quantize.js'
import type { LayerWeights } from './residentWeights.js'
import type { SlotLayout, SlotMatrix } from './slotLayout.js'
import type { StatePool } from './statePool.js'
import { swigluOp } from './swiglu.js'
import { topKOp } from './topK.js'
import type { Workspace } from './workspace.js'

export interface PromptLayer {
  /** hidden += mlpOut of the layer before (not for the first), norm, mixer → mixerOut. */
  readonly mixer: Op
  /** hidden += mixerOut, norm, router, top K, shared expert. */
  readonly router: Op
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
  readonly slots: ExpertSlots
  readonly layout: SlotLayout
  readonly host: HostExperts | null // computes experts that are not in slots; null: they are brought
}

export async function promptLayer(parts: LayerParts, weights: LayerWeights, layer: number): Promise<PromptLayer> {
  const { gpu, config, space, slots } = parts
  const { hiddenSize, rmsNormEps } = config
  const norm = (weight: GPUBuffer, delta: GPUBuffer | null) =>
    addNormOp(gpu, { weight, delta, hidden: space.hidden, out: space.normed.values }, hiddenSize, rmsNormEps)
  const { step } = space
  const { maxTokens } = space.shape
  const [mixer, router, experts, expertsOfWave, combine] = await Promise.all([
    all([
      norm(weights.inputNorm, layer === 0 ? null : space.mlpOut),
      mixerOps(parts, weights, layer),
      matMulOp(gpu, weights.outProj, space.mixed, space.mixerOut, {
        step,
        maxTokens,
        outStride: hiddenSize,
        label: 'outProj',
      }),
    ]),
    all([
      norm(weights.postNorm, space.mixerOut),
      matMulOp(gpu, weights.router, space.normed, space.logits, {
        step,
        maxTokens,
        outStride: space.shape.logitsStride,
        exact: true,
        label: 'router',
      }),
      topKOp(gpu, space.shape, { ...space, slotTable: slots.table }, layer, null),
      sharedExpert(parts, weights),
    ]),
    expertOps(parts, layer, slots.table),
    expertOps(parts, layer, slots.waveTable),
    combineOp(gpu, space.shape, { ...space, sharedRows: space.sharedOut, out: space.mlpOut }, hiddenSize),
  ])
  return { mixer, router, experts, expertsOfWave, combine }
}

async function all(ops: readonly Promise<Op>[]): Promise<Op> {
  return sequence(await Promise.all(ops))
}

function mixerOps(parts: LayerParts, weights: LayerWeights, layer: number): Promise<Op> {
  const { gpu, config, space, states, kv } = parts
  const { step, tokenInfo, runInfo, mixerIn, convolved, queries, angles } = space
  const mixed = space.mixed.values
  const project = (outStride: number) =>
    matMulOp(gpu, weights.inProj, space.normed, mixerIn, {
      step,
      maxTokens: space.shape.maxTokens,
      outStride,
      label: 'inProj',
    })
  if (weights.kind === 'linear_attention') {
    const { taps, gates, norm } = weights
    return all([
      project(linearColumns(config).stride),
      convOp(gpu, config, { taps, tokenInfo, runInfo, inputs: mixerIn, out: convolved }, states, layer),
      gatedDeltaOp(gpu, config, { gates, runInfo, inputs: mixerIn, convolved, out: mixed }, states, layer),
      gatedNormOp(gpu, config, norm, mixerIn, mixed),
    ])
  }
  const input = { norms: weights.qkNorms, tokenInfo, angles, inputs: mixerIn, queries }
  const attend = { step, tokenInfo, inputs: mixerIn, queries, parts: queries, out: mixed }
  return all([
    project(attentionColumns(config).stride),
    attentionInputOp(gpu, config, input, kv, layer),
    attentionOp(gpu, config, attend, kv, layer, 1),
  ])
}

function sharedExpert({ gpu, config, space }: LayerParts, weights: LayerWeights): Promise<Op> {
  const { step, sharedGateUp, sharedAct, sharedOut } = space
  const width = config.sharedExpertIntermediateSize
  const { maxTokens } = space.shape
  return all([
    matMulOp(gpu, weights.sharedGateUp, space.normed, sharedGateUp, {
      step,
      maxTokens,
      outStride: 2 * width,
      label: 'shared',
    }),
    swigluOp(gpu, sharedGateUp, sharedAct.values, width, 1),
    matMulOp(gpu, weights.sharedDown, sharedAct, sharedOut, {
      step,
      maxTokens,
      outStride: config.hiddenSize,
      label: 'shared',
    }),
  ])
}

/** Every expert of `table` applied to its tokens: gate and up, SwiGLU, down → expertRows. */
async function expertOps(parts: LayerParts, layer: number, table: GPUBuffer): Promise<Op> {
  const { gpu, config, space, slots, layout } = parts
  const { shape, step, groups, choice, normed, expertGateUp, expertAct, expertRows } = space
  const { gate, up, down } = layout
  const pool = slots.pool(layer)
  const width = config.moeIntermediateSize
  const k = shape.k
  const common = {
    step,
    groups,
    pairsAt: pairsAt(shape),
    slotStride: layout.stride,
    maxTiles: (tokens: number) => maxTiles(shape, tokens),
    label: 'experts',
  }
  const segment = (matrix: SlotMatrix, out: number) => ({ ...matrix, out })
  const isFast = (matrix: SlotMatrix) => gpu.fast && matrix.format.bits < 16
  const ops: Promise<Op>[] = [groupTokensOp(gpu, shape, step, table, choice, groups, layer)]
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
      ? quantizeOp(gpu, expertAct, width, down.format.bits, k, expertGateUp)
      : swigluOp(gpu, expertGateUp, expertAct.values, width, k),
  )
  const options = { ...common, outStride: config.hiddenSize, pairsPerRow: 1 }
  ops.push(groupedMatMulOp(gpu, pool, down.format, down.cols, [segment(down, 0)], expertAct, expertRows, options))
  return all(ops)
}
