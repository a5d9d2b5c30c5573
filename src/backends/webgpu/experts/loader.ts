// Carries out the streamer's orders where slots are on a GPU: a read begins when a staging buffer is free for it, demands
// before reads ahead; what has come is sent on into its slot, and only then is the streamer told. Which buffer is free and
// what may happen to a slot is the business of their life (experts/slotLife.ts). Knows of neither GPU nor disk, so that
// tests try every order of events.
import type { ExpertCache } from '../../../experts/expertCache.js'
import { type ReadFault, type ReadOrders, readFault, type StreamerCore } from '../../../experts/streamerCore.js'
import type { ReadPriority } from './expertReader.js'

export interface StagedReadActions {
  /** Fills a staging buffer with an expert's bytes. */
  read(layer: number, expert: number, buffer: number, priority: ReadPriority): PromiseLike<void>
  /** An expert that is being read ahead is wanted now. */
  promote(layer: number, expert: number): void
  /** What was in the slot is no longer found by commands that are submitted from now on. */
  hide(slot: number): void
  /** Copies a filled buffer into the slot, where commands that are submitted from now on find the expert. */
  send(buffer: number, slot: number, layer: number, expert: number): void
  /** Submits copies that wait for other commands, so that their buffers come back. */
  flush(): void
  /** A read has ended, and the streamer knows. */
  ended(): void
}

export class StagedReads implements ReadOrders {
  /** Reads that have begun and not ended. */
  underWay = 0
  /** Reads ahead wait until they are told to begin, one by one. */
  isPaced = false
  private readonly demands: number[] = [] // slots
  private readonly ahead: number[] = []
  private isOver = false

  constructor(
    private readonly cache: ExpertCache,
    private readonly actions: StagedReadActions,
    private readonly core: () => StreamerCore,
  ) {}

  ask(slot: number, ahead: boolean): void {
    this.actions.hide(slot)
    ;(ahead ? this.ahead : this.demands).push(slot)
    this.beginReads()
  }

  promote(slot: number): void {
    if (take(this.ahead, slot)) {
      this.demands.push(slot)
      this.beginReads()
    } else if (!this.demands.includes(slot)) {
      this.actions.promote(this.cache.layerOf(slot), this.cache.expertOf(slot))
    }
  }

  callOff(slot: number): boolean {
    return take(this.demands, slot) || take(this.ahead, slot)
  }

  /** Begins what can begin. To be called when a staging buffer has become free. */
  beginReads(): void {
    while (this.beginFirst(this.demands.length > 0 || this.isPaced ? this.demands : this.ahead)) {}
  }

  /** Begins a read ahead, where these are paced and nothing else is to be read. Whether it has. */
  beginAhead(): boolean {
    return this.demands.length === 0 && this.beginFirst(this.ahead)
  }

  private beginFirst(queue: number[]): boolean {
    if (queue.length === 0 || this.isOver) return false
    const buffer = this.cache.life.begin(queue[0])
    if (buffer < 0) this.actions.flush()
    else this.begin(queue.shift() as number, buffer, queue === this.ahead ? 'prefetch' : 'demand')
    return buffer >= 0
  }

  /** Nothing begins any more, and what comes goes nowhere. */
  stop(): void {
    this.isOver = true
  }

  private begin(slot: number, buffer: number, priority: ReadPriority): void {
    const layer = this.cache.layerOf(slot)
    const expert = this.cache.expertOf(slot)
    this.underWay++
    this.actions.read(layer, expert, buffer, priority).then(
      () => this.end(slot, buffer, layer, expert, this.isOver ? { detail: 'the readers were closed' } : null),
      error => this.end(slot, buffer, layer, expert, readFault(error)),
    )
  }

  private end(slot: number, buffer: number, layer: number, expert: number, fault: ReadFault | null): void {
    this.underWay--
    const core = this.core()
    core.ended(slot, fault)
    // Before anything else is read: the slot may be given away again.
    if (fault === null) this.actions.send(buffer, slot, layer, expert)
    core.goOn()
    this.beginReads()
    this.actions.ended()
  }
}

function take(queue: number[], slot: number): boolean {
  const at = queue.indexOf(slot)
  if (at >= 0) queue.splice(at, 1)
  return at >= 0
}
