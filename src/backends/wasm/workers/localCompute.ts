// The wasm backend's jobs on the caller's own thread, for places without shared memory. It gives way to the event loop
// before a layer and whenever experts have to come first, so that reads end, aborts are heard and nothing else starves.
import { ClosedError, DeviceLostError, messageOf } from '../../../base/errors.js'
import { Breather } from '../../../base/yieldToEventLoop.js'
import type { ExpertStreamer } from '../../../experts/expertStreamer.js'
import { instantiateKernels, type Kernels } from '../kernels.js'
import { ExpertFeed } from '../layers/expertFeed.js'
import { Forward } from '../layers/forward.js'
import { Lane } from '../layers/workerOps.js'
import type { ComputePool, Readers } from '../platform.js'
import { type ComputeSetup, makeStreamer } from './computeLoop.js'
import type { JobBoard } from './jobBoard.js'
import { runJob } from './jobRunner.js'
import { Team } from './team.js'

/** What looks at the memories through views, which are void once a memory has grown. */
interface Hands {
  readonly buffers: readonly ArrayBufferLike[]
  readonly feed: ExpertFeed | null // null: the model has no experts
  readonly forward: Forward
}

export class LocalCompute implements ComputePool {
  private readonly team: Team
  private readonly streamer: ExpertStreamer | null
  private readonly breather = new Breather()
  private hands: Hands | null = null
  private running: Promise<void> = Promise.resolve()
  private stopJob = () => {}
  private isFinished = false // the last job
  private closed = false
  failure: DeviceLostError | null = null

  private constructor(
    private readonly setup: ComputeSetup,
    private readonly board: JobBoard,
    private readonly readers: Readers | null,
    private readonly kernels: readonly Kernels[],
  ) {
    this.team = new Team(0, board.words, board.teamBase)
    this.streamer = makeStreamer(setup, board)
  }

  static async start(setup: ComputeSetup, board: JobBoard, readers: Readers | null): Promise<LocalCompute> {
    const kernels = await Promise.all(setup.memories.map(memory => instantiateKernels(setup.kernels, memory)))
    return new LocalCompute(setup, board, readers, kernels)
  }

  run(workers: number, signal?: AbortSignal): Promise<void> {
    if (this.failure) return Promise.reject(this.failure)
    if (this.closed) return Promise.reject(new ClosedError('model'))
    if (signal?.aborted) return Promise.reject(signal.reason)
    const job = this.runJob(workers, signal)
    this.running = job.catch(() => {})
    return job
  }

  async close(): Promise<void> {
    this.closed = true
    this.stopJob()
    await this.running
  }

  private async runJob(workers: number, signal?: AbortSignal): Promise<void> {
    const { board, team } = this
    const { feed, forward } = this.takeHands()
    board.post(workers)
    const stopped = new Promise<void>(resolve => {
      this.stopJob = () => {
        board.abort()
        resolve()
      }
    })
    const abort = () => this.stopJob()
    signal?.addEventListener('abort', abort)
    try {
      for (const halt of runJob(board, team, forward)) {
        if (halt === 'layer') await this.breather.maybeYield()
        else if (feed) await this.expertsReady(feed, stopped)
      }
    } catch (cause) {
      // What was thrown left the job in the middle: its counters and slots are not to be trusted any more.
      const detail = messageOf(cause)
      this.failure = new DeviceLostError('wasm', `computing failed: ${detail}; open the model again`, { cause })
      throw this.failure
    } finally {
      signal?.removeEventListener('abort', abort)
      this.stopJob = () => {}
    }
    if (!this.isFinished) throw feed?.failure ?? signal?.reason ?? new ClosedError('model')
  }

  private async expertsReady(feed: ExpertFeed, stopped: Promise<void>): Promise<void> {
    if (feed.isReady) return
    const from = performance.now()
    while (!feed.isReady) await Promise.race([this.readers?.serve?.(), stopped])
    this.streamer?.countStall((performance.now() - from) / 1000)
  }

  /** Memories grow between jobs only. */
  private takeHands(): Hands {
    const { model, memories } = this.setup
    const buffers = memories.map(memory => memory.buffer as ArrayBufferLike)
    if (this.hands?.buffers.every((buffer, i) => buffer === buffers[i])) return this.hands
    const lane = new Lane(model, this.team, this.board, this.kernels, memories)
    const feed = this.streamer && new ExpertFeed(lane, this.streamer, memories)
    this.hands = { buffers, feed, forward: new Forward(lane, feed, isFinished => (this.isFinished = isFinished)) }
    return this.hands
  }
}
