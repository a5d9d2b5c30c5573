// Full attention of one layer over all rows of a step: projections, then keys and values of the new rows into
// their pages, then attention by blocks of queries and groups of heads, then the output projection.

import { PAGE_TOKENS } from '../../kvPages.js'
import { ATTENTION_QUERY_BLOCK, floatTypeCode } from '../kernels.js'
import type { PlacedAttention, PlacedLayer } from '../memory/placedModel.js'
import type { Rows } from '../memory/scratch.js'
import { HOME, type Lane, type Need, needsOf } from './workerOps.js'

export class FullMixer {
  private readonly inputNeeds: readonly Need[]
  private readonly storeNeeds: readonly Need[]
  private readonly outNeeds: readonly Need[]
  private readonly headFloats: number // of a head of queries: with an output gate, query and gate

  constructor(
    private readonly lane: Lane,
    private readonly index: number,
    private readonly fullIndex: number, // among the full-attention layers
    private readonly layer: PlacedLayer,
    private readonly mixer: PlacedAttention,
  ) {
    this.inputNeeds = needsOf(mixer.qProj, mixer.kProj, mixer.vProj)
    this.storeNeeds = needsOf(mixer.kProj, mixer.vProj)
    this.outNeeds = needsOf(mixer.oProj)
    this.headFloats = (mixer.shape.outputGate ? 2 : 1) * lane.model.config.headDim
  }

  run(): void {
    const { lane, layer, mixer } = this
    const { scratch, team, rows } = lane
    lane.multiplyNormed(layer.inputNorm, this.inputNeeds, [
      [mixer.qProj, scratch.query],
      [mixer.kProj, scratch.key],
      [mixer.vProj, scratch.value],
    ])

    // With few rows every worker stores all of them: equal bytes to equal places, and no barrier.
    lane.eachRow(rows, (begin, end) => this.storeRows(begin, end))
    this.attend()
    team.barrier()

    lane.multiplyIntoHidden(lane.stage('attentionOut'), this.outNeeds, mixer.oProj)
  }

  /** Keys and values alone, of rows that nothing else is wanted of. */
  storeOnly(from: Rows): void {
    const { lane, layer, mixer } = this
    const { scratch, rows } = lane
    const products = [
      [mixer.kProj, scratch.key],
      [mixer.vProj, scratch.value],
    ] as const
    lane.multiplyNormed(layer.inputNorm, this.storeNeeds, products, from)
    lane.eachRow(rows, (begin, end) => this.storeRows(begin, end))
  }

  /** Norm and rope of the keys of rows [begin, end), and both keys and values into their pages. */
  private storeRows(begin: number, end: number): void {
    const { lane, layer } = this
    const { key, value, ropeTable } = lane.scratch
    const { numKvHeads, headDim, rope } = lane.model.config
    const keys: Rows = lane.alone ? lane.own.keys : key
    const target = keys.address + begin * keys.stride
    const count = end - begin
    const head = headDim * 4
    this.normKeys(keys, begin, end)
    const table = ropeTable.address + begin * ropeTable.stride
    lane.home.rope(target, keys.stride, head, table, ropeTable.stride, rope.dims, count, numKvHeads)
    if (layer.stateBank !== HOME) {
      lane.copyColumns(HOME, layer.stateBank, keys, begin, end, 0, numKvHeads * headDim)
      lane.copyColumns(HOME, layer.stateBank, value, begin, end, 0, numKvHeads * headDim)
    }
    for (let run = 0; run < lane.board.runs; run++) this.storeRun(run, keys, begin, end)
  }

  /** Rows [begin, end) of the keys, normed where the layer has norms, to where they are worked on. */
  private normKeys(keys: Rows, begin: number, end: number): void {
    const { lane, mixer } = this
    const { key } = lane.scratch
    const { numKvHeads, headDim, rmsNormEps } = lane.model.config
    const head = headDim * 4
    const to = keys.address + begin * keys.stride
    const from = key.address + begin * key.stride
    if (mixer.kNorm !== 0) {
      const shape = [headDim, rmsNormEps, end - begin, numKvHeads] as const
      lane.home.rmsNormHeads(to, keys.stride, head, from, key.stride, head, mixer.kNorm, ...shape)
      return
    }
    for (let row = begin; keys !== key && row < end; row++) {
      const [out, x] = [keys.address + row * keys.stride, key.address + row * key.stride]
      lane.home.convertFloats(out, x, floatTypeCode.F32, numKvHeads * headDim)
    }
  }

  private storeRun(run: number, keys: Rows, begin: number, end: number): void {
    const { lane } = this
    const { value } = lane.scratch
    const { numKvHeads, headDim } = lane.model.config
    const kernels = lane.kernels[this.layer.stateBank]
    const { rowStart, rows, position } = lane.board.run(run)
    const kvDim = numKvHeads * headDim
    const firstPage = Math.floor(position / PAGE_TOKENS)
    for (let row = Math.max(begin, rowStart); row < Math.min(end, rowStart + rows); row++) {
      const at = position + lane.shift + row - rowStart
      const page = lane.board.page(run, this.fullIndex, Math.floor(at / PAGE_TOKENS) - firstPage)
      const target = page + (at % PAGE_TOKENS) * kvDim * 4
      kernels.convertFloats(target, keys.address + row * keys.stride, floatTypeCode.F32, kvDim)
      kernels.convertFloats(
        target + PAGE_TOKENS * kvDim * 4,
        value.address + row * value.stride,
        floatTypeCode.F32,
        kvDim,
      )
    }
  }

  /** Units: a block of queries of one run times a group of heads. */
  private attend(): void {
    const { lane } = this
    const { team, board } = lane
    const { numHeads, numKvHeads } = lane.model.config
    // Heads that share keys and values go together, unless that leaves workers idle when there is one token.
    const together = numHeads / numKvHeads
    const heads = numKvHeads % team.size === 0 ? together : Math.max(1, Math.floor(numHeads / team.size / 2))
    const groups = Math.ceil(numHeads / heads)
    const counter = team.begin()
    let unit = team.claim(counter, 1)
    let before = 0
    for (let run = 0; run < board.runs; run++) {
      const { rowStart, rows, position } = board.run(run)
      const units = Math.ceil(rows / ATTENTION_QUERY_BLOCK) * groups
      while (unit < before + units) {
        const block = Math.floor((unit - before) / groups) * ATTENTION_QUERY_BLOCK
        const head = ((unit - before) % groups) * heads
        const count = Math.min(ATTENTION_QUERY_BLOCK, rows - block)
        const at = position + lane.shift + block
        this.attendBlock(run, rowStart + block, count, at, head, Math.min(numHeads, head + heads))
        unit = team.claim(counter, 1)
      }
      before += units
    }
  }

  private attendBlock(
    run: number,
    row: number,
    count: number,
    position: number,
    headBegin: number,
    headEnd: number,
  ): void {
    const { lane, layer, mixer, headFloats } = this
    const { query } = lane.scratch
    const out = lane.scratch.attentionOut.x
    const { numHeads, numKvHeads, headDim } = lane.model.config
    const { outputGate, window } = mixer.shape
    const { rowStart, firstRow } = lane.board.run(run)
    // A row that sees nothing before `firstRow` is one with a window; runs of the head for drafts have one row.
    const seen = firstRow === 0 ? (window ?? 0) : position + 1 - firstRow
    const head = headFloats * 4
    const q = query.address + row * query.stride
    this.turnQueries(row, count, headBegin, headEnd)
    const bank = layer.stateBank
    if (bank !== HOME) {
      lane.copyColumns(HOME, bank, query, row, row + count, headBegin * headFloats, headEnd * headFloats)
    }
    const target = out.address + row * out.stride
    lane.kernels[bank].attention(
      target,
      out.stride,
      q,
      query.stride,
      head,
      lane.board.state(rowStart, this.index, 0),
      lane.board.state(rowStart, this.index, 1),
      position,
      count,
      numHeads,
      numKvHeads,
      headDim,
      headDim ** -0.5,
      seen,
      mixer.sinks,
      headBegin,
      headEnd,
      lane.own.attention,
    )
    if (bank !== HOME) lane.copyColumns(bank, HOME, out, row, row + count, headBegin * headDim, headEnd * headDim)
    if (!outputGate) return
    const gate = q + headDim * 4
    const shape = [headDim, count, headBegin, headEnd] as const
    lane.home.sigmoidGate(target, out.stride, headDim * 4, gate, query.stride, head, ...shape)
  }

  /** Norm and rope of heads [headBegin, headEnd) of the queries of `count` rows, in place. */
  private turnQueries(row: number, count: number, headBegin: number, headEnd: number): void {
    const { lane, mixer } = this
    const { query, ropeTable } = lane.scratch
    const { headDim, rmsNormEps, rope } = lane.model.config
    const head = this.headFloats * 4
    const heads = headEnd - headBegin
    const own = query.address + row * query.stride + headBegin * head
    if (mixer.qNorm !== 0) {
      const shape = [headDim, rmsNormEps, count, heads] as const
      lane.home.rmsNormHeads(own, query.stride, head, own, query.stride, head, mixer.qNorm, ...shape)
    }
    const table = ropeTable.address + row * ropeTable.stride
    lane.home.rope(own, query.stride, head, table, ropeTable.stride, rope.dims, count, heads)
  }
}
