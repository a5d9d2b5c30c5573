// The life of a compute worker, whatever kind of thread it is: kernels over every bank, then job after job from the board
// until it is told to stop. It blocks between jobs and never returns to an event loop.
import { ExpertReadError } from '../../errors.js'
import { ExpertStreamer, type StreamerPlan } from '../../experts/expertStreamer.js'
import { ReadRing } from '../../experts/readRing.js'
import { ExpertFeed } from './expertFeed.js'
import { Forward } from './forward.js'
import { type BoardShape, JobBoard } from './jobBoard.js'
import { instantiateKernels, type KernelModule } from './kernels.js'
import { Lane } from './lane.js'
import type { PlacedModel } from './placedModel.js'
import { Team } from './team.js'

/** Can be posted to a worker. */
export interface ComputeSetup {
  readonly index: number // 0 leads
  readonly kernels: KernelModule
  readonly memories: readonly WebAssembly.Memory[] // per bank
  readonly board: ArrayBufferLike
  readonly boardShape: BoardShape
  readonly model: PlacedModel
  readonly streamer: StreamerPlan
  readonly ring: ArrayBufferLike // of a ReadRing
}

/** An error that survives being posted. */
export interface PostedFailure {
  readonly message: string
  readonly read?: { layer: number; expert: number; file: string; offset: number; detail: string }
}

/** What workers tell the main thread. Only the leader reports jobs. */
export type WorkerReport =
  | { readonly kind: 'ready' }
  | { readonly kind: 'done' }
  | { readonly kind: 'aborted' }
  | { readonly kind: 'failed'; readonly failure: PostedFailure }

export async function runComputeLoop(setup: ComputeSetup, report: (report: WorkerReport) => void): Promise<void> {
  const { index, memories, model } = setup
  const kernels = await Promise.all(memories.map(memory => instantiateKernels(setup.kernels, memory)))
  const board = new JobBoard(setup.boardShape, setup.board)
  const team = new Team(index, board.teamWords)
  const lane = new Lane(model, team, board, kernels, memories)
  const feed = index === 0 ? new ExpertFeed(lane, makeStreamer(setup, board), memories) : null
  const forward = new Forward(lane, feed)
  report({ kind: 'ready' })
  for (let job = board.next(index, 0); job !== 0; job = board.next(index, job)) {
    team.start(board.workers)
    feed?.beginJob()
    const finished = forward.run()
    if (!feed) continue
    team.finish()
    board.waited[0] = team.waited
    feed.endJob(finished)
    if (finished) report({ kind: 'done' })
    else if (feed.failure === null) report({ kind: 'aborted' })
    else report({ kind: 'failed', failure: postFailure(feed.failure) })
  }
}

/** The leader's. */
export function makeStreamer(setup: ComputeSetup, board: JobBoard): ExpertStreamer {
  return new ExpertStreamer(setup.streamer, new ReadRing(setup.ring), board.abortWord, board.resident)
}

function postFailure(error: unknown): PostedFailure {
  const message = error instanceof Error ? error.message : String(error)
  if (!(error instanceof ExpertReadError)) return { message }
  const { layer, expert, file, offset, detail } = error
  return { message, read: { layer, expert, file, offset, detail } }
}
