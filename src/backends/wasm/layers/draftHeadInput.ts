// What the layer of a head for drafts begins with: a token's embedding and the final-norm row of the token before it, each normed, beside
// each other, times `fc`. In a step the rows before are the step's own, but for the first of each run; in a job of guesses the first
// ones are given, and each next one is what the head itself made of the guess before.
import type { PlacedHead } from '../memory/placedModel.js'
import type { Rows, Stage } from '../memory/scratch.js'
import { type Lane, type Need, needsOf } from './workerOps.js'

export class HeadInput {
  private readonly needs: readonly Need[]

  constructor(
    private readonly lane: Lane,
    private readonly head: PlacedHead,
    /** Puts the embedding of a row's token into the first columns of that row. */
    private readonly embed: (row: number, out: Rows) => void,
  ) {
    this.needs = needsOf(head.fc)
  }

  /** Of all tokens of a step, into `out`, without a barrier. Leaves their final-norm rows in `normed`. */
  ofStep(out: Rows, normed: Rows): void {
    const { lane } = this
    const { hidden, before } = lane.scratch
    const { norm } = lane.model
    lane.eachRow(lane.rows, (begin, end) => {
      for (let run = 0; run < lane.board.runs; run++) {
        const { rowStart, rows } = lane.board.run(run)
        for (let row = Math.max(begin, rowStart); row < Math.min(end, rowStart + rows); row++) {
          this.putEmbedding(row)
          if (row === rowStart) this.putBefore(row, before, row)
          else {
            this.norm(this.second, row, hidden, row - 1, norm)
            this.putBefore(row, this.second, row)
          }
          this.norm(normed, row, hidden, row, norm)
        }
      }
      lane.prepare(this.stage, this.needs, begin, end)
    })
    lane.multiply(this.stage, [[this.head.fc, out]], lane.rows)
  }

  /** Of one token per sequence, in place of the residual stream. Ends with a barrier. */
  ofGuesses(isFirst: boolean): void {
    const { lane } = this
    const { hidden, before } = lane.scratch
    lane.eachRow(lane.rows, (begin, end) => {
      for (let row = begin; row < end; row++) {
        this.putEmbedding(row)
        if (isFirst) this.putBefore(row, before, row)
      }
      lane.prepare(this.stage, this.needs, begin, end)
    })
    lane.multiply(this.stage, [[this.head.fc, hidden]], lane.rows)
    lane.team.barrier()
  }

  /** The half of the next guess's input that this one makes, as long as nobody writes to the residual stream. */
  followUp(): void {
    const { lane, head } = this
    lane.eachRow(lane.rows, (begin, end) => {
      for (let row = begin; row < end; row++) {
        this.norm(this.second, row, lane.scratch.hidden, row, head.norm)
        this.putBefore(row, this.second, row)
      }
    })
  }

  private get stage(): Stage {
    return this.lane.alone ? this.lane.own.headInput : this.lane.scratch.headInput
  }

  /** Where the second halves of the stage's rows are. */
  private get second(): Rows {
    const { address, stride } = this.stage.x
    return { address: address + this.lane.model.config.hiddenSize * 4, stride }
  }

  private putEmbedding(row: number): void {
    const { x } = this.stage
    this.embed(row, x)
    this.norm(x, row, x, row, this.head.embeddingNorm)
  }

  private putBefore(row: number, from: Rows, fromRow: number): void {
    this.norm(this.second, row, from, fromRow, this.head.hiddenNorm)
  }

  private norm(out: Rows, row: number, from: Rows, fromRow: number, weight: number): void {
    const { hiddenSize, rmsNormEps } = this.lane.model.config
    const to = out.address + row * out.stride
    const x = from.address + fromRow * from.stride
    this.lane.home.rmsNorm(to, out.stride, x, from.stride, weight, hiddenSize, rmsNormEps, 1)
  }
}
