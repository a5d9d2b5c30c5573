// The course of a job through a worker: what is done in which order, where all workers meet, and the one way out. It knows
// no math: that is the worker's share of the work, which the course calls. Every worker of a job runs the same course over
// the same words, so all of them come to the same end. Tests run this very code over all schedules.
import { type JobBoard, WAVE } from './jobBoard.js'
import type { Team } from './team.js'

/** One worker's part of the work of a job. Between two barriers of the course it may have barriers of its own. */
export interface Share {
  /** Looks at what the job is, and does what comes before the layers. Ends with a barrier where it writes for others. */
  begin(): LayerRange
  /** A layer up to its experts. */
  mix(layer: number): void
  /** The leader's: puts the next experts on the board, or that the job is given up. */
  nextWave(): void
  /** The experts on the board. */
  wave(isLast: boolean): void
  endLayer(): void
  /** What comes after the layers. */
  head(): void
  /** Whether the job goes through its layers once more, the same in every worker. If so, does what comes before them. */
  goesOn(): boolean
  /** When all have left. The leader's: puts results down and tells the main thread, last of all. */
  conclude(isFinished: boolean): void
}

export interface LayerRange {
  readonly firstLayer: number
  readonly endLayer: number
}

/** Where a worker that may not block gives way: before a layer, and before experts that may not be there yet. */
export type Halt = 'layer' | 'experts'

/** Job after job, until the worker is told to end. `last`: the job that it had before. */
export function serveJobs(board: JobBoard, team: Team, share: Share, last = 0): void {
  for (let job = last; ; ) {
    job = board.next(team.index, job)
    if (job === 0) return
    const course = runJob(board, team, share)
    while (!course.next().done);
  }
}

/** The job on the board. */
export function* runJob(board: JobBoard, team: Team, share: Share): Generator<Halt, void> {
  team.start(board.workers)
  const isFinished = yield* runLayers(board, team, share)
  team.leave()
  share.conclude(isFinished)
}

/** False: given up in the middle, at the same point in every worker. */
function* runLayers(board: JobBoard, team: Team, share: Share): Generator<Halt, boolean> {
  const { firstLayer, endLayer } = share.begin()
  do {
    for (let layer = firstLayer; layer < endLayer; layer++) {
      yield 'layer'
      share.mix(layer)
      let kind: number = WAVE.experts
      while (kind === WAVE.experts) {
        yield 'experts'
        if (team.isLeader) share.nextWave()
        team.barrier()
        kind = board.waveKind // stays until all have passed the next barrier, which is that of `leave` after an abandon
        if (kind === WAVE.abandon) break
        share.wave(kind === WAVE.lastExperts)
        team.barrier()
      }
      share.endLayer()
      if (kind === WAVE.abandon) return false
    }
    share.head()
  } while (share.goesOn())
  return true
}
