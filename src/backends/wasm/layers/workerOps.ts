// One worker's hands: its kernels over every bank and the few moves that all parts of the forward pass are made of.
// Activations of record lie in the home bank; where a matrix or a layer's state lies elsewhere, rows travel there and
// back. Which worker does what is shared out through the team and never changes a bit of the result.

import type { WasmMemory } from '../../../base/wasmTypes.js'
import type { Activation } from '../../../model/layers.js'
import type { Kernels } from '../kernels.js'
import type { PlacedModel, Weights } from '../memory/placedModel.js'
import { PRIVATE_ROWS, type PrivateScratch, type Rows, type Scratch, type Stage } from '../memory/scratch.js'
import { convStateBytes } from '../memory/sequenceStore.js'
import type { JobBoard } from '../workers/jobBoard.js'
import type { Team } from '../workers/team.js'
import { BLOCKS, Products } from './matmulDispatch.js'
import { cutRows, type MatrixRows, pieceAt } from './rowPieces.js'

export const HOME = 0

const CHUNKS_PER_WORKER = 4

/** Where inputs must be, and in which form (-1: floats), for the matrices that take them. */
export interface Need {
  readonly bank: number
  readonly form: number
}

export function needsOf(...weights: Weights[]): Need[] {
  const needs: Need[] = []
  for (const { bank, form } of weights) {
    if (!needs.some(need => need.bank === bank && need.form === form)) needs.push({ bank, form })
  }
  return needs.sort((a, b) => a.bank - b.bank)
}

/** The stages that a worker has of its own for small steps. */
type StageName = 'input' | 'linearOut' | 'attentionOut' | 'expertAct'

/** What a lane needs to know of a model. */
export type LaneModel = Pick<PlacedModel, 'config' | 'expertsPerToken' | 'chunkTokens' | 'scratch'>

export class Lane<M extends LaneModel = PlacedModel> {
  readonly scratch: Scratch
  readonly own: PrivateScratch
  readonly convStateBytes: number
  rows = 0 // of the present job
  alone = false // few rows: every worker prepares inputs for itself
  shift = 0 // of positions: guesses that were made before in this job
  readonly products: Products
  private readonly floats: Float32Array[] // per bank, over the scratch
  private readonly words: Uint32Array[] // the same bytes

  constructor(
    readonly model: M,
    readonly team: Team,
    readonly board: JobBoard,
    readonly kernels: readonly Kernels[], // per bank
    memories: readonly WasmMemory[],
  ) {
    this.scratch = model.scratch
    this.own = model.scratch.private[team.index]
    this.convStateBytes = convStateBytes(model.config)
    this.products = new Products(kernels, model.scratch.forms, this.own.product)
    this.floats = memories.map(memory => new Float32Array(memory.buffer, 0, model.scratch.bytes / 4))
    this.words = memories.map(memory => new Uint32Array(memory.buffer, 0, model.scratch.bytes / 4))
  }

  get home(): Kernels {
    return this.kernels[HOME]
  }

  begin(): void {
    this.rows = this.board.rows
    this.shift = 0
    this.alone = this.rows <= PRIVATE_ROWS && !this.board.probe
  }

  stage(name: StageName): Stage {
    return this.alone ? this.own[name] : this.scratch[name]
  }

  /** Runs `work` over all rows of the step: every worker for itself where they are few, else shared out. */
  eachRow(rows: number, work: (begin: number, end: number) => void): void {
    if (this.alone) {
      work(0, rows)
      return
    }
    this.team.ranges(rows, Math.max(1, Math.ceil(rows / (this.team.size * CHUNKS_PER_WORKER))), work)
    this.team.barrier()
  }

  /** Brings rows of a stage to the banks and into the forms that its matrices need. */
  prepare(stage: Stage, needs: readonly Need[], begin: number, end: number): void {
    let copied = HOME
    for (const { bank, form } of needs) {
      if (bank !== copied) {
        this.copyColumns(HOME, bank, stage.x, begin, end, 0, stage.cols)
        copied = bank
      }
      if (form >= 0) this.prepareForm(stage, bank, form, begin, end)
    }
  }

  prepareForm(stage: Stage, bank: number, form: number, begin: number, end: number): void {
    const of = this.scratch.forms[form]
    const { address, stride } = stage.records[form]
    const kernels = this.kernels[bank]
    const { x, cols } = stage
    if (of.block !== null) {
      const { bits, group, shift, isLanes, isNibbles } = BLOCKS[of.block]
      if (of.precision === 'exact') {
        if (isNibbles) kernels.prepareExact(address, stride, x.address, x.stride, cols, 4, 32, begin, end)
        return
      }
      kernels.prepareBlocks(address, stride, x.address, x.stride, cols, bits, group, shift, isLanes, begin, end)
      return
    }
    const { bits, group, precision } = of
    if (precision === 'exact') kernels.prepareExact(address, stride, x.address, x.stride, cols, bits, group, begin, end)
    else kernels.prepareFast(address, stride, x.address, x.stride, cols, bits, group, begin, end)
  }

  /** Rows [begin, end) of a stage := rms norm of the residual stream, or of other rows. */
  norm(stage: Stage, weight: number, begin: number, end: number, from = this.scratch.hidden): void {
    const { hiddenSize, rmsNormEps } = this.model.config
    const out = stage.x.address + begin * stage.x.stride
    const x = from.address + begin * from.stride
    this.home.rmsNorm(out, stage.x.stride, x, from.stride, weight, hiddenSize, rmsNormEps, end - begin)
  }

  /** Rows [begin, end) of a resident matrix times rows from the first on, the result at home. */
  residentProduct(weights: Weights, stage: Stage, out: Rows, tokens: number, begin: number, end: number): void {
    const [input, output] = [
      { stage, first: 0, list: 0 },
      { rows: out, first: 0, list: 0 },
    ]
    this.products.compute(weights, null, input, output, tokens, begin, end)
    if (weights.bank !== HOME) this.copyColumns(weights.bank, HOME, out, 0, tokens, begin, end)
  }

  /** Matrix products of one input, shared out by rows. `after` runs on each finished piece. No barrier. */
  multiply(
    stage: Stage,
    products: readonly (readonly [Weights, Rows])[],
    tokens: number,
    after?: (begin: number, end: number) => void,
  ): void {
    const matrices = products.map(([{ rows, cols }]) => ({ rows, productsPerRow: cols * tokens }))
    this.shareRows(matrices, (index, begin, end) => {
      const [weights, out] = products[index]
      this.residentProduct(weights, stage, out, tokens, begin, end)
      after?.(begin, end)
    })
  }

  /** Shares out the rows of matrices, one after the other, in ascending pieces. No barrier. */
  shareRows(matrices: readonly MatrixRows[], work: (index: number, begin: number, end: number) => void): void {
    const { team } = this
    const counter = team.begin()
    let piece = team.claim(counter, 1)
    let before = 0
    for (const [index, cut] of cutRows(matrices, team.size, !this.alone).entries()) {
      for (; piece < before + cut.pieces; piece = team.claim(counter, 1)) work(index, ...pieceAt(cut, piece - before))
      before += cut.pieces
    }
  }

  /** The input of a block: rows of the residual stream, or `from` elsewhere, are normed and multiplied. Ends with a barrier. */
  multiplyNormed(
    norm: number,
    needs: readonly Need[],
    products: readonly (readonly [Weights, Rows])[],
    from?: Rows,
  ): void {
    const input = this.stage('input')
    this.eachRow(this.rows, (begin, end) => {
      this.norm(input, norm, begin, end, from)
      this.prepare(input, needs, begin, end)
    })
    this.multiply(input, products, this.rows)
    this.team.barrier()
  }

  /** The output of a mixer: its last product, added to the residual stream. Ends with a barrier. */
  multiplyIntoHidden(stage: Stage, needs: readonly Need[], weights: Weights): void {
    const { mixerOut } = this.scratch
    this.eachRow(this.rows, (begin, end) => this.prepare(stage, needs, begin, end))
    this.multiply(stage, [[weights, mixerOut]], this.rows, (begin, end) => this.addToHidden(mixerOut, begin, end))
    this.team.barrier()
  }

  /** Columns [begin, end) of `tokens` rows of gates := what the activation makes of them and of `up`, in a bank. */
  activate(
    activation: Activation,
    bank: number,
    gates: Rows,
    up: Rows,
    row: number,
    tokens: number,
    begin: number,
    end: number,
  ): void {
    const kernels = this.kernels[bank]
    const gate = gates.address + row * gates.stride
    const ups = up.address + row * up.stride
    const last = Math.ceil(end / 4) * 4
    if (activation.kind === 'silu') {
      kernels.siluMul(gate, gates.stride, gate, gates.stride, ups, up.stride, tokens, begin, last)
      return
    }
    const { limit, alpha } = activation
    kernels.clampedSwiglu(gate, gates.stride, gate, gates.stride, ups, up.stride, limit, alpha, tokens, begin, last)
  }

  /** Residual stream += out, for columns [begin, end) of every row. Columns are multiples of 4, or the last. */
  addToHidden(out: Rows, begin: number, end: number): void {
    const { hidden } = this.scratch
    const count = Math.ceil((end - begin) / 4) * 4
    for (let row = 0; row < this.rows; row++) {
      const address = hidden.address + row * hidden.stride + begin * 4
      this.home.add(address, address, out.address + row * out.stride + begin * 4, count)
    }
  }

  /** A row of activations at home, for JavaScript. */
  row(rows: Rows, row: number, count: number): Float32Array {
    const at = (rows.address + row * rows.stride) / 4
    return this.floats[HOME].subarray(at, at + count)
  }

  /** One float of the scratch memory of a bank. */
  float(bank: number, address: number): number {
    return this.floats[bank][address / 4]
  }

  /** Copies columns [begin, end) of rows [first, last) from one bank to the same place in another. */
  copyColumns(from: number, to: number, rows: Rows, first: number, last: number, begin: number, end: number): void {
    const source = this.floats[from]
    const target = this.floats[to]
    for (let row = first; row < last; row++) {
      const at = (rows.address + row * rows.stride) / 4
      target.set(source.subarray(at + begin, at + end), at + begin)
    }
  }

  /** `copyColumns` for the rows that entries [start, start + count) of a list of row numbers name. */
  copyIndexed(
    from: number,
    to: number,
    rows: Rows,
    list: number,
    start: number,
    count: number,
    begin: number,
    end: number,
  ): void {
    const numbers = this.words[from]
    for (let i = list / 4 + start; i < list / 4 + start + count; i++) {
      this.copyColumns(from, to, rows, numbers[i], numbers[i] + 1, begin, end)
    }
  }
}
