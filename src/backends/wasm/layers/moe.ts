// The MoE block of one layer over all rows of a step: router and shared expert, then the routed experts in waves as they
// become ready, then the sum of all.
import type { PlacedLayer, PlacedMoe, Weights } from '../memory/placedModel.js'
import type { Rows } from '../memory/scratch.js'
import type { WaveEntry } from '../workers/jobBoard.js'
import { ResidentExpert } from './denseExpert.js'
import { ChoiceRule } from './earlyRouter.js'
import type { ExpertFeed } from './expertFeed.js'
import { RoutedExperts, type SharedPart } from './routedExperts.js'
import { type Lane, type Need, needsOf } from './workerOps.js'

export class Moe {
  readonly hasExperts = true
  private readonly inputNeeds: readonly Need[]
  private readonly logits: readonly (readonly [Weights, Rows])[]
  private readonly rule: ChoiceRule
  private readonly picks: number // u32 [chunk, K]
  private readonly weights: number // [chunk, K]
  private readonly shared: ResidentExpert | null
  private readonly sharedPart: SharedPart | null
  private readonly routed: RoutedExperts
  private isFirstWave = false // of the present step: what the shared expert has begun is ended with it

  constructor(
    private readonly lane: Lane,
    private readonly index: number, // among the layers with experts
    private readonly layer: PlacedLayer,
    moe: PlacedMoe,
    entries: WaveEntry[], // [experts], scratch of this worker
    private readonly feed: ExpertFeed | null, // the leader's
  ) {
    const { router, shared } = moe
    const { routerLogits, sharedGate, sharedOut } = lane.scratch
    const ofShared = shared ? [shared.expert.gate, shared.expert.up] : []
    const gate = shared?.gate ?? null
    this.logits = gate
      ? [
          [router, routerLogits],
          [gate, sharedGate],
        ]
      : [[router, routerLogits]]
    this.inputNeeds = needsOf(...this.logits.map(([weights]) => weights), ...ofShared)
    this.rule = new ChoiceRule(moe)
    this.shared = shared && new ResidentExpert(lane, shared.expert)
    this.sharedPart = shared && { out: sharedOut, gate: gate && sharedGate }
    const before = index * lane.model.chunkTokens * lane.model.expertsPerToken * 4
    this.picks = lane.scratch.indices + before
    this.weights = lane.scratch.weights + before
    this.routed = new RoutedExperts(lane, moe.expert, this.inputNeeds, entries, this.weights)
  }

  /** Everything up to the routed experts, which are asked for on the way. */
  begin(): void {
    const { lane, layer, feed, shared } = this
    const { team, rows } = lane
    const startedAt = feed ? performance.now() : 0
    const input = lane.stage('input')
    lane.eachRow(rows, (begin, end) => {
      lane.norm(input, layer.postAttentionNorm, begin, end)
      lane.prepare(input, this.inputNeeds, begin, end)
    })
    lane.multiply(input, this.logits, rows)
    team.barrier()

    // The others begin with the shared expert while the leader chooses and asks for those that are routed to.
    this.route()
    feed?.request(this.index, rows)
    feed?.routed(startedAt)
    feed?.prefetch(this.index + 1)
    shared?.gateUp(input)
    this.routed.begin()
    this.isFirstWave = true
  }

  /** The experts that the leader has put on the board; after the last of them, the sum of all. */
  computeWave(isLast: boolean): void {
    const { lane, routed, shared } = this
    if (this.isFirstWave) shared?.down(lane.scratch.sharedOut)
    this.isFirstWave = false
    routed.wave()
    if (!isLast) return
    lane.team.barrier()
    const { mlpOut } = lane.scratch
    routed.combine(lane.model.expertsPerToken, this.sharedPart, (begin, end) => lane.addToHidden(mlpOut, begin, end))
  }

  private route(): void {
    const { lane } = this
    const { routerLogits } = lane.scratch
    const route = (begin: number, end: number) =>
      this.rule.choose(lane, this.picks, this.weights, routerLogits, begin, end)
    // The leader alone needs the picks now; the others meet it at the wave's barrier.
    if (!lane.alone) lane.eachRow(lane.rows, route)
    else if (lane.team.isLeader) route(0, lane.rows)
  }
}
