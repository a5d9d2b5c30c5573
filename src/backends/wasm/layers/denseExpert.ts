// Feed-forward blocks whose weights are always there: of a layer without experts (Dense), and the
// shared expert of a layer that has some (ResidentExpert alone, see moe.ts).
import type { PlacedDense, PlacedFeedForward, PlacedLayer } from '../memory/placedModel.js'
import type { Rows, Stage } from '../memory/scratch.js'
import type { ExpertFeed } from './expertFeed.js'
import { HOME, type Lane, type Need, needsOf } from './workerOps.js'

/**
 * The block of a layer without experts. To the course of a job it is a layer with one wave of none:
 * the barrier at which the leader would show experts is the one between the block's two parts.
 */
export class Dense {
  readonly hasExperts = false
  private readonly block: ResidentExpert

  constructor(
    private readonly lane: Lane,
    private readonly layer: PlacedLayer,
    { expert }: PlacedDense,
    private readonly feed: ExpertFeed | null, // the leader's, where the first experts come right after this layer
  ) {
    this.block = new ResidentExpert(lane, expert)
  }

  begin(): void {
    const { lane, layer, block } = this
    const input = lane.stage('input')
    lane.eachRow(lane.rows, (begin, end) => {
      lane.norm(input, layer.postAttentionNorm, begin, end)
      lane.prepare(input, block.inputNeeds, begin, end)
    })
    this.feed?.prefetchFirst()
    block.gateUp(input)
  }

  computeWave(): void {
    const { mlpOut } = this.lane.scratch
    this.block.down(mlpOut, (begin, end) => this.lane.addToHidden(mlpOut, begin, end))
  }
}

/** A block in two parts, with a barrier between them that is the caller's. */
export class ResidentExpert {
  /** What the input has to be prepared for. */
  readonly inputNeeds: readonly Need[]
  private readonly actNeeds: readonly Need[]
  private readonly stages: { readonly own: Stage; readonly common: Stage } // as wide as this block

  constructor(
    private readonly lane: Lane,
    private readonly expert: PlacedFeedForward,
  ) {
    this.inputNeeds = needsOf(expert.gate, expert.up)
    this.actNeeds = needsOf(expert.down)
    const { cols } = expert.down
    this.stages = { own: { ...lane.own.innerAct, cols }, common: { ...lane.scratch.innerAct, cols } }
  }

  /** Gate, up and activation of all rows, shared out by columns. */
  gateUp(input: Stage): void {
    const { lane } = this
    const { gate, up, activation } = this.expert
    const { innerUp, innerAct } = lane.scratch
    const rows = lane.rows
    lane.shareRows([{ rows: gate.rows, productsPerRow: 2 * gate.cols * rows }], (_, begin, end) => {
      lane.residentProduct(gate, input, innerAct.x, rows, begin, end)
      lane.residentProduct(up, input, innerUp, rows, begin, end)
      lane.activate(activation, HOME, innerAct.x, innerUp, 0, rows, begin, end)
    })
  }

  /** The last product. `after` runs on each finished piece. */
  down(out: Rows, after?: (begin: number, end: number) => void): void {
    const { lane } = this
    const act = lane.alone ? this.stages.own : this.stages.common
    lane.eachRow(lane.rows, (begin, end) => lane.prepare(act, this.actNeeds, begin, end))
    lane.multiply(act, [[this.expert.down, out]], lane.rows, after)
  }
}
