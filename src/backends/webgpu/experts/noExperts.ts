// What steps ask of expert slots, and who answers where a model has no experts: nothing can miss, nothing is read, and commands
// go straight to the queue.
import { noReads, type ReadTotals } from '../../../experts/readers/readCounters.js'
import type { StreamerStats } from '../../../experts/streamerCore.js'
import type { ExpertSlots } from './expertSlots.js'

export type StepSlots = Pick<
  ExpertSlots,
  | ('isAllResident' | 'isResident' | 'isShown' | 'sharedSlot' | 'generation' | 'leastSlots')
  | ('tick' | 'beginStep' | 'moveUp' | 'gathers' | 'submit' | 'touch' | 'hold' | 'letGo' | 'waves' | 'endAhead')
  | ('onRead' | 'readsAsked' | 'has' | 'prefetch' | 'reading')
  | ('holdsAll' | 'fill' | 'forget' | 'residency' | 'bytes' | 'reads' | 'stats' | 'close')
>

export class NoExperts implements StepSlots {
  readonly isAllResident = true
  readonly generation = 0
  readonly leastSlots = Number.POSITIVE_INFINITY
  readonly readsAsked = 0
  readonly reading = 0
  readonly holdsAll = false
  readonly bytes = 0
  gathers = false
  onRead: (() => void) | null = null
  private readonly device: GPUDevice

  constructor(device: GPUDevice) {
    this.device = device
  }

  submit(commands: readonly GPUCommandBuffer[]): void {
    this.device.queue.submit([...commands])
  }

  get reads(): ReadTotals {
    return noReads()
  }

  get stats(): StreamerStats {
    return {
      ...{ expertHits: 0, expertMisses: 0, prefetchHits: 0, prefetchReads: 0, prefetchWastedBytes: 0 },
      ...{ stallSeconds: 0, expertSlots: 0, expertSlotsUsed: 0 },
    }
  }

  residency(): Uint8Array {
    return new Uint8Array(0)
  }

  isResident(): boolean {
    return true
  }

  isShown(): boolean {
    return true
  }

  has(): boolean {
    return true
  }

  sharedSlot(): null {
    return null
  }

  async *waves(): AsyncGenerator<void> {}
  async hold(): Promise<void> {}
  async fill(): Promise<void> {}
  async close(): Promise<void> {}
  tick(): void {}
  beginStep(): void {}
  moveUp(): void {}
  touch(): void {}
  letGo(): void {}
  endAhead(): void {}
  prefetch(): void {}
  forget(): void {}
}
