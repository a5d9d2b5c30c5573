// The layout of scratch memory at the start of every bank: activations of a step, records that matrix products read, and
// a private part for each worker. One layout for all banks, so that an activation has the same address in each of them.
//
// Three regions are reused within a layer; what makes that safe is the order of phases (see forward.ts): mixer and MoE
// activations overlay each other, and so do the records of inputs that are never needed together.

import { type BlockName, blockFormat, isNibbles } from '../../../model/blockFormats.js'
import type { ModelConfig } from '../../../model/config.js'
import type { LayerShape } from '../../../model/layers.js'
import type { QuantBits, QuantGroup } from '../../../model/tensors.js'
import type { Precision } from '../../backend.js'
import {
  ATTENTION_QUERY_BLOCK,
  activationBytes,
  attentionScratchBytes,
  blockActivationBytes,
  blockScratchBytes,
  matmulScratchBytes,
  routeScratchBytes,
} from '../kernels.js'
import { alignUp } from './bank.js'

/** Up to so many rows every worker prepares inputs for itself, which costs less than a barrier. */
export const PRIVATE_ROWS = 4

/** Rows of logits computed by one job. */
export const HEAD_ROWS = 16

/** Rows of floats [rows, dim], each row padded to 16 bytes. */
export interface Rows {
  readonly address: number
  readonly stride: number
}

/** What the input of some matrix of the model looks like; the index in `Scratch.forms` stands for it. */
export type InputForm = AffineForm | BlockForm

export interface AffineForm {
  readonly block: null
  readonly bits: QuantBits
  readonly group: QuantGroup
  readonly precision: Precision
}

/** With float32 activations, products of blocks take rows as they are. */
export interface BlockForm {
  readonly block: BlockName
  readonly precision: Precision
}

/** The input of matrix products: rows of floats and, per form, records of them. */
export interface Stage {
  readonly cols: number
  readonly x: Rows
  readonly records: readonly Rows[] // per form
}

export interface PrivateScratch {
  readonly input: Stage // hidden columns
  readonly linearOut: Stage
  readonly attentionOut: Stage
  readonly innerAct: Stage // as wide as the widest shared expert or dense block
  readonly expertAct: Stage // PRIVATE_ROWS * K rows
  readonly conv: Rows // [PRIVATE_ROWS, convDim]
  readonly beta: Rows // [chunk, valueHeads]
  readonly decay: Rows // [chunk, valueHeads]
  readonly keys: Rows // [PRIVATE_ROWS, kvDim]
  readonly product: number
  readonly attention: number
  readonly route: number
  readonly head: Stage // HEAD_ROWS rows of hidden columns
  readonly headInput: Stage // of the head for drafts
}

export interface Scratch {
  readonly bytes: number
  readonly forms: readonly InputForm[]
  readonly hidden: Rows // [chunk, hidden]: the residual stream
  readonly mixerOut: Rows // [chunk, hidden]
  readonly mlpOut: Rows // [chunk, hidden]
  readonly sharedOut: Rows // [chunk, hidden]
  readonly ropeTable: Rows // [chunk, rope.dims]
  readonly logits: Rows // [HEAD_ROWS, vocab]
  readonly routerLogits: Rows // [chunk, experts]
  readonly sharedGate: Rows // [chunk, 1]
  readonly indices: number // u32 [layers with experts, chunk, K]: kept for the whole step
  readonly weights: number // [layers with experts, chunk, K]: kept as well
  readonly pairRow: number // u32 [chunk * K]: the row of each (row, expert) pair, pairs sorted by expert
  readonly pairOut: number // u32 [chunk * K]: row * K + rank
  readonly before: Rows // [chunk, hidden]: for the head for drafts, the final-norm row before a run's first token
  readonly headInput: Stage // its two halves beside each other
  readonly qkv: Rows // [chunk, convDim]
  readonly conv: Rows // [chunk, convDim]
  readonly z: Rows // [chunk, valueHeads * valueDim]
  readonly a: Rows // [chunk, valueHeads]
  readonly b: Rows // [chunk, valueHeads]
  readonly query: Rows // [chunk, heads * headDim], twice as wide with output gates
  readonly key: Rows // [chunk, kvDim]
  readonly value: Rows // [chunk, kvDim]
  readonly expertUp: Rows // [chunk * K, intermediate]
  readonly expertOut: Rows // [chunk * K, hidden]
  readonly innerUp: Rows // [chunk, inner width]: of a shared expert or a dense block
  readonly input: Stage
  readonly linearOut: Stage
  readonly attentionOut: Stage
  readonly innerAct: Stage
  readonly expertAct: Stage
  readonly early: Stage // PRIVATE_ROWS rows: the leader's guess at a later layer's router
  readonly earlyLogits: Rows // [PRIVATE_ROWS, experts]
  readonly earlyWeights: number // [PRIVATE_ROWS, K]
  readonly earlyPicks: { readonly address: number; readonly rows: number } // u32 [PRIVATE_ROWS, K]
  readonly private: readonly PrivateScratch[] // per worker
}

export interface ScratchRequest {
  readonly config: ModelConfig
  readonly expertsPerToken: number
  readonly chunkTokens: number
  readonly threads: number
  readonly forms: readonly InputForm[]
}

/** Hands out addresses from the first cache line on: address 0 means "none" to kernels. */
class Cursor {
  at = 64

  bytes(count: number): number {
    const address = this.at
    this.at = alignUp(address + count, 64)
    return address
  }

  rows(rows: number, dim: number): Rows {
    // Rows a power of two apart would share a few sets of the caches.
    const stride = alignUp(dim * 4, 16) + (dim % 256 === 0 ? 64 : 0)
    return { address: this.bytes(rows * stride), stride }
  }

  /** Lays out alternatives over each other and goes on after the longest. */
  overlay<T extends readonly unknown[]>(...parts: { [K in keyof T]: () => T[K] }): T {
    const start = this.at
    let end = start
    const results = parts.map(part => {
      this.at = start
      const result = part()
      end = Math.max(end, this.at)
      return result
    })
    this.at = end
    return results as unknown as T
  }
}

/** Of the block that is always in memory: the shared expert's, or all of a dense layer's. */
function widthOf({ feedForward }: LayerShape, { sharedExpertIntermediateSize }: ModelConfig): number {
  if (feedForward.kind === 'dense') return feedForward.width
  return feedForward.shared === 'none' ? 0 : sharedExpertIntermediateSize
}

function groupsOf(feedForward: LayerShape['feedForward']): number {
  return feedForward.kind === 'moe' ? (feedForward.router.groups?.count ?? 0) : 0
}

function recordBytes(form: InputForm, cols: number): number {
  if (form.block === null) return activationBytes(cols, form.bits, form.group, form.precision)
  const format = blockFormat(form.block)
  if (form.precision === 'fast') return blockActivationBytes(cols, format.group)
  return isNibbles(format) ? activationBytes(cols, 4, 32, 'exact') : 0
}

export function layoutScratch(request: ScratchRequest): Scratch {
  const { config, expertsPerToken: k, chunkTokens: chunk, forms } = request
  const cursor = new Cursor()
  const kvDim = config.numKvHeads * config.headDim
  const linearDim = config.linearValueHeads * config.linearValueDim
  const attentionDim = config.numHeads * config.headDim
  const layers = config.draftHead === null ? config.layers : [...config.layers, config.draftHead]
  const hasGates = layers.some(({ mixer }) => mixer.kind === 'full_attention' && mixer.outputGate)
  const queryDim = (hasGates ? 2 : 1) * attentionDim
  const innerWidth = Math.max(0, ...layers.map(layer => widthOf(layer, config)))
  const groups = Math.max(0, ...layers.map(({ feedForward }) => groupsOf(feedForward)))
  const headChunk = config.draftHead === null ? 0 : chunk

  const records = (rows: number, cols: number): Rows[] =>
    forms.map(form => {
      const stride = recordBytes(form, cols)
      return { address: cursor.bytes(rows * stride), stride }
    })
  const stage = (rows: number, cols: number): Stage => ({
    cols,
    x: cursor.rows(rows, cols),
    records: records(rows, cols),
  })
  /** Records of one's own for rows that all workers write together. */
  const ownRecords = (rows: number, { cols, x }: Stage): Stage => ({ cols, x, records: records(rows, cols) })

  const common = {
    forms,
    hidden: cursor.rows(chunk, config.hiddenSize),
    mixerOut: cursor.rows(chunk, config.hiddenSize),
    mlpOut: cursor.rows(chunk, config.hiddenSize),
    sharedOut: cursor.rows(chunk, config.hiddenSize),
    ropeTable: cursor.rows(chunk, config.rope.dims),
    logits: cursor.rows(HEAD_ROWS, config.vocabSize),
    routerLogits: cursor.rows(chunk, config.numExperts),
    sharedGate: cursor.rows(chunk, 1),
    indices: cursor.bytes(config.expertLayers.length * chunk * k * 4),
    before: cursor.rows(headChunk, config.hiddenSize),
    weights: cursor.bytes(config.expertLayers.length * chunk * k * 4),
    pairRow: cursor.bytes(chunk * k * 4),
    pairOut: cursor.bytes(chunk * k * 4),
    input: stage(chunk, config.hiddenSize),
    early: stage(PRIVATE_ROWS, config.hiddenSize),
    earlyLogits: cursor.rows(PRIVATE_ROWS, config.numExperts),
    earlyWeights: cursor.bytes(PRIVATE_ROWS * k * 4),
    earlyPicks: { address: cursor.bytes(PRIVATE_ROWS * k * 4), rows: PRIVATE_ROWS },
  }
  const [headInput, linear, full, moe] = cursor.overlay(
    () => stage(headChunk, headChunk === 0 ? 0 : 2 * config.hiddenSize),
    () => ({
      qkv: cursor.rows(chunk, config.linearConvDim),
      conv: cursor.rows(chunk, config.linearConvDim),
      z: cursor.rows(chunk, linearDim),
      a: cursor.rows(chunk, config.linearValueHeads),
      b: cursor.rows(chunk, config.linearValueHeads),
      linearOut: stage(chunk, linearDim),
    }),
    () => ({
      query: cursor.rows(chunk, queryDim),
      key: cursor.rows(chunk, kvDim),
      value: cursor.rows(chunk, kvDim),
      attentionOut: stage(chunk, attentionDim),
    }),
    () => ({
      innerUp: cursor.rows(chunk, innerWidth),
      innerAct: stage(chunk, innerWidth),
      expertUp: cursor.rows(chunk * k, config.moeIntermediateSize),
      expertOut: cursor.rows(chunk * k, config.hiddenSize),
      expertAct: stage(chunk * k, config.moeIntermediateSize),
    }),
  )
  const stages = [headInput, common.input, linear.linearOut, full.attentionOut, moe.innerAct, moe.expertAct]
  const longestRecord = Math.max(0, ...stages.flatMap(({ records }) => records.map(({ stride }) => stride)))
  const blockBytes = Math.max(...stages.map(({ cols }) => blockScratchBytes(cols)))
  const own = Array.from({ length: request.threads }, (): PrivateScratch => {
    const [linearOut, attentionOut] = cursor.overlay(
      () => ownRecords(PRIVATE_ROWS, linear.linearOut),
      () => ownRecords(PRIVATE_ROWS, full.attentionOut),
    )
    return {
      input: stage(PRIVATE_ROWS, config.hiddenSize),
      linearOut,
      attentionOut,
      innerAct: ownRecords(PRIVATE_ROWS, moe.innerAct),
      expertAct: ownRecords(PRIVATE_ROWS * k, moe.expertAct),
      conv: cursor.rows(PRIVATE_ROWS, config.linearConvDim),
      beta: cursor.rows(chunk, config.linearValueHeads),
      decay: cursor.rows(chunk, config.linearValueHeads),
      keys: cursor.rows(PRIVATE_ROWS, kvDim),
      product: cursor.bytes(Math.max(matmulScratchBytes(longestRecord), blockBytes)),
      attention: cursor.bytes(attentionScratchBytes(ATTENTION_QUERY_BLOCK, config.numHeads, config.headDim)),
      route: cursor.bytes(routeScratchBytes(config.numExperts, groups)),
      head: stage(HEAD_ROWS, config.hiddenSize),
      headInput: stage(headChunk === 0 ? 0 : PRIVATE_ROWS, headInput.cols),
    }
  })
  return { ...common, headInput, ...linear, ...full, ...moe, private: own, bytes: cursor.at }
}
