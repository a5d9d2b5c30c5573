// The life of a compute worker that knows routed experts alone: the rows, which experts they go through and where those lie
// all come from the main thread, which has them in memory before it gives the job. What the experts gave, weighted and
// summed per row, stays in `mlpOut`.

import { instantiateKernels } from '../kernels.js'
import { RoutedExperts } from '../layers/routedExperts.js'
import { Lane, type LaneModel } from '../layers/workerOps.js'
import type { PlacedFeedForward } from '../memory/placedModel.js'
import { JobBoard, WAVE } from './jobBoard.js'
import { type LayerRange, type Share, serveJobs } from './jobRunner.js'
import { defaultLimits, Team } from './team.js'
import type { WorkerReport, WorkerSetup } from './workerMessages.js'

export interface ExpertModel extends LaneModel {
  /** Per layer: addresses relative to the slot; the bank is the slot's. */
  readonly experts: readonly PlacedFeedForward[]
  readonly norms: readonly number[] // per layer: address of the weights of the norm before its experts
}

export interface ExpertSetup extends WorkerSetup {
  readonly task: 'experts'
  readonly model: ExpertModel
  readonly jobSpins: number // looks at the board before a worker sleeps
  readonly barrierSpins: number
  readonly tells: boolean // the main thread of a job's end; else it looks for itself
}

export async function runExpertLoop(setup: ExpertSetup, report: (report: WorkerReport) => void): Promise<void> {
  const { index, memories, model } = setup
  const kernels = await Promise.all(memories.map(memory => instantiateKernels(setup.kernels, memory)))
  const board = new JobBoard(setup.boardShape, setup.board, undefined, setup.jobSpins)
  const team = new Team(index, board.words, board.teamBase, { ...defaultLimits, spins: setup.barrierSpins })
  const share = new ExpertShare(new Lane(model, team, board, kernels, memories), () => {
    board.finish()
    if (setup.tells) report({ kind: 'done', job: board.finishedJob })
  })
  report({ kind: 'ready' })
  serveJobs(board, team, share)
}

class ExpertShare implements Share {
  private readonly byLayer: readonly RoutedExperts[]
  private routed: RoutedExperts

  constructor(
    private readonly lane: Lane<ExpertModel>,
    private readonly ended: () => void, // the leader has left a job, and so have all others
  ) {
    const { experts } = lane.board.shape
    const entries = Array.from({ length: experts }, () => ({ bank: 0, address: 0, pairStart: 0, pairs: 0 }))
    const { weights } = lane.scratch
    this.byLayer = lane.model.experts.map(expert => new RoutedExperts(lane, expert, [], entries, weights))
    this.routed = this.byLayer[0]
  }

  begin(): LayerRange {
    const { lane } = this
    lane.begin()
    return { firstLayer: lane.board.firstLayer, endLayer: lane.board.endLayer }
  }

  mix(layer: number): void {
    const { lane } = this
    const input = lane.stage('input')
    this.routed = this.byLayer[layer]
    this.clearUnused()
    lane.eachRow(lane.rows, (begin, end) => lane.norm(input, lane.model.norms[layer], begin, end))
    this.routed.begin()
  }

  nextWave(): void {
    const { board } = this.lane
    board.setWave(WAVE.lastExperts, board.entryCount)
  }

  wave(): void {
    const { lane, routed } = this
    routed.wave()
    lane.team.barrier()
    routed.combine(lane.board.ranks, null)
  }

  endLayer(): void {}

  head(): void {}

  goesOn(): boolean {
    return false
  }

  conclude(): void {
    if (this.lane.team.isLeader) this.ended()
  }

  /** Ranks that a row has fewer than others weigh nothing; what is summed for them must be a number nevertheless. */
  private clearUnused(): void {
    const { lane } = this
    const { expertOut, weights } = lane.scratch
    const { ranks } = lane.board
    const { hiddenSize } = lane.model.config
    lane.team.ranges(lane.rows, 1, (begin, end) => {
      for (let row = begin; row < end; row++) {
        const weight = lane.row({ address: weights, stride: ranks * 4 }, row, ranks)
        for (let rank = 0; rank < ranks; rank++) {
          if (weight[rank] === 0) lane.row(expertOut, row * ranks + rank, hiddenSize).fill(0)
        }
      }
    })
  }
}
