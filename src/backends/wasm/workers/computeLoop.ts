// The life of a compute worker, whatever kind of thread it is: kernels over every bank, then job after job from the board
// until it is told to stop. It blocks between jobs and never returns to an event loop. Whatever is thrown here and
// is no error of the engine's own is the end of the worker: its share of the next barrier will never come.

import { ExpertReadError, type MoefluxError } from '../../../base/errors.js'
import { ExpertStreamer, type StreamerPlan } from '../../../experts/expertStreamer.js'
import { ReadRing } from '../../../experts/readers/readRing.js'
import { instantiateKernels } from '../kernels.js'
import { ExpertFeed } from '../layers/expertFeed.js'
import { Forward } from '../layers/forward.js'
import { Lane } from '../layers/workerOps.js'
import type { PlacedModel } from '../memory/placedModel.js'
import { type ExpertSetup, runExpertLoop } from './expertLoop.js'
import { JobBoard } from './jobBoard.js'
import { serveJobs } from './jobRunner.js'
import { gatedParts } from './stepGate.js'
import { Team } from './team.js'
import type { PostedFailure, WorkerReport, WorkerSetup } from './workerMessages.js'

/** How the leader gets experts. */
export interface ExpertSetting {
  readonly streamer: StreamerPlan
  readonly ring: ArrayBufferLike // of a ReadRing
}

/** For workers that run a whole model. */
export interface ComputeSetup extends WorkerSetup {
  readonly task: 'model'
  readonly model: PlacedModel
  readonly experts: ExpertSetting | null // null: the model has none
  readonly gate?: SharedArrayBuffer // for tests: of a StepGate
}

export type AnySetup = ComputeSetup | ExpertSetup

export async function runComputeLoop(setup: AnySetup, report: (report: WorkerReport) => void): Promise<void> {
  if (setup.task === 'experts') return runExpertLoop(setup, report)
  const { index, memories, model } = setup
  const kernels = await Promise.all(memories.map(memory => instantiateKernels(setup.kernels, memory)))
  const { board, team, openRing } = openParts(setup)
  const lane = new Lane(model, team, board, kernels, memories)
  const streamer = index === 0 ? makeStreamer(setup, board, openRing) : null
  const feed = streamer && new ExpertFeed(lane, streamer, memories)
  const forward = new Forward(lane, feed, isFinished => report(reportOf(isFinished, feed?.failure ?? null)))
  report({ kind: 'ready' })
  serveJobs(board, team, forward)
}

function openParts({ index, gate, boardShape, board }: ComputeSetup) {
  if (gate) return gatedParts(gate, index, boardShape, board)
  const words = new JobBoard(boardShape, board)
  const team = new Team(index, words.words, words.teamBase)
  return { board: words, team, openRing }
}

function openRing(ring: ArrayBufferLike): ReadRing {
  return new ReadRing(ring)
}

/** The leader's; null for a model without experts. */
export function makeStreamer({ experts }: ComputeSetup, board: JobBoard, open = openRing): ExpertStreamer | null {
  return experts && new ExpertStreamer(experts.streamer, open(experts.ring), board.abortWord, board.resident)
}

function reportOf(isFinished: boolean, failure: MoefluxError | null): WorkerReport {
  if (isFinished) return { kind: 'done' }
  return failure === null ? { kind: 'aborted' } : { kind: 'failed', failure: postFailure(failure) }
}

function postFailure(error: MoefluxError): PostedFailure {
  const { message } = error
  if (!(error instanceof ExpertReadError)) return { message }
  const { layer, expert, file, offset, detail } = error
  return { message, read: { layer, expert, file, offset, detail } }
}
