// The MoE block of one layer over all rows of a step: router and shared expert, then the routed experts in waves as they
// become ready, then the sum of all.
import type { ExpertFeed } from './expertFeed.js'
import type { WaveEntry } from './jobBoard.js'
import { type Lane, type Need, needsOf } from './lane.js'
import type { PlacedLayer } from './placedModel.js'
import { RoutedExperts, to4 } from './routedExperts.js'
import type { Stage } from './scratch.js'

export class Moe {
  private readonly inputNeeds: readonly Need[]
  private readonly actNeeds: readonly Need[]
  private readonly routed: RoutedExperts

  constructor(
    private readonly lane: Lane,
    private readonly index: number,
    private readonly layer: PlacedLayer,
    entries: WaveEntry[], // [experts], scratch of this worker
    private readonly feed: ExpertFeed | null, // the leader's
  ) {
    const { gate, up, down } = layer.shared
    this.inputNeeds = needsOf(layer.router, layer.sharedExpertGate, gate, up)
    this.actNeeds = needsOf(down)
    this.routed = new RoutedExperts(lane, this.inputNeeds, entries)
  }

  /** Everything up to the routed experts, which are asked for on the way. */
  begin(): void {
    const { lane, layer, feed } = this
    const { scratch, team, rows } = lane
    const startedAt = feed ? performance.now() : 0
    const input = lane.stage('input')
    lane.eachRow(rows, (begin, end) => {
      lane.norm(input, layer.postAttentionNorm, begin, end)
      lane.prepare(input, this.inputNeeds, begin, end)
    })
    lane.multiply(
      input,
      [
        [layer.router, scratch.routerLogits],
        [layer.sharedExpertGate, scratch.sharedGate],
      ],
      rows,
    )
    this.sharedGateUp(input)
    team.barrier()

    this.route()
    feed?.request(this.index, rows)
    feed?.routed(startedAt)
    feed?.prefetch(this.index + 1)
    const act = lane.stage('sharedAct')
    lane.eachRow(rows, (begin, end) => lane.prepare(act, this.actNeeds, begin, end))
    lane.multiply(act, [[layer.shared.down, scratch.sharedOut]], rows)
    this.routed.begin()
  }

  /** The experts that the leader has put on the board; after the last of them, the sum of all. */
  computeWave(isLast: boolean): void {
    const { lane, routed } = this
    routed.wave()
    if (!isLast) return
    lane.team.barrier()
    const { mlpOut } = lane.scratch
    routed.combine(lane.model.expertsPerToken, (begin, end) => lane.addToHidden(mlpOut, begin, end))
  }

  private sharedGateUp(input: Stage): void {
    const { lane } = this
    const { gate, up } = this.layer.shared
    const { sharedUp, sharedAct } = lane.scratch
    const rows = lane.rows
    lane.team.ranges(gate.rows, lane.rowGrain(gate.rows, 2 * gate.cols * rows), (begin, end) => {
      lane.residentProduct(gate, input, sharedAct.x, rows, begin, end)
      lane.residentProduct(up, input, sharedUp, rows, begin, end)
      const { address, stride } = sharedAct.x
      lane.home.siluMul(address, stride, address, stride, sharedUp.address, sharedUp.stride, rows, begin, to4(end))
    })
  }

  private route(): void {
    const { lane } = this
    const { routerLogits, weights } = lane.scratch
    const indices = lane.scratch.indices + this.index * lane.model.chunkTokens * lane.model.expertsPerToken * 4
    const { numExperts } = lane.model.config
    const k = lane.model.expertsPerToken
    const route = (begin: number, end: number) => {
      const { address, stride } = routerLogits
      const rule = [false, 0, 0, 0, true, 1] as const
      lane.home.route(indices, weights, address, stride, numExperts, k, ...rule, begin, end, lane.own.route)
    }
    // The leader alone needs the picks now; the others meet it at the wave's barrier.
    if (!lane.alone) lane.eachRow(lane.rows, route)
    else if (lane.team.isLeader) route(0, lane.rows)
  }
}
