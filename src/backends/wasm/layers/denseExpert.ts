// The feed-forward block of a layer without experts. To the course of a job it is a layer with one wave of none: the barrier at
// which the leader would show experts is the one between the block's two parts.
import type { PlacedDense, PlacedLayer } from '../memory/placedModel.js'
import type { ExpertFeed } from './expertFeed.js'
import { ResidentExpert } from './residentExpert.js'
import type { Lane } from './workerOps.js'

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
