// A bad disk for tests: shared words that make reads fail, come up short, take long or wait for the tester, while a model
// is open. Without the words no reader knows that this exists.
import type { ReadBytes } from './readerLoop.js'

export type FaultKind = 'none' | 'error' | 'short' | 'end' | 'flip'
const KINDS: readonly FaultKind[] = ['none', 'error', 'short', 'end', 'flip']

// Words.
const W_KIND = 0
const W_FILE = 1 // -1: all
const W_READS = 2 // tries that are hit; -1: all
const W_DELAY = 3 // ms
const W_SKIP = 4 // reads that pass before one is picked; -1: none is
const W_PICKED_FILE = 5 // -1: not picked yet
const W_PICKED_FROM = 6
const W_PICKED_TO = 7
const W_GATE = 8
const WORDS = 9

const gate = { open: 0, shut: 1, waiting: 2 } as const

/** The tester's side. */
export class ReadFaults {
  readonly buffer = new SharedArrayBuffer(WORDS * 4)
  private readonly words = new Int32Array(this.buffer)

  constructor() {
    this.set('none')
  }

  /**
   * error: EIO. short: half of what was asked for, then nothing. end: as if the file ended before the read. flip: all of it,
   * with one bit that is another.
   */
  set(kind: FaultKind, options: { file?: number; reads?: number; delayMs?: number } = {}): void {
    this.write(kind, options.file ?? -1, options.reads ?? -1, options.delayMs ?? 0, -1, gate.open)
  }

  /** Hits one read and no other: that which begins after `skip` others from now, as often as it is tried, or so often. */
  pick(kind: FaultKind, skip: number, tries = -1): void {
    this.write(kind, -1, tries, 0, skip, gate.open)
  }

  /** The same read waits until `letGo`, and meets the fault then. */
  pickAndHold(skip: number, kind: FaultKind = 'none', tries = -1): void {
    this.write(kind, -1, tries, 0, skip, gate.shut)
  }

  /** Whether the picked read has begun. */
  get isMet(): boolean {
    return Atomics.load(this.words, W_PICKED_FILE) >= 0
  }

  /** Whether the picked read waits to be let go. */
  get isWaiting(): boolean {
    return Atomics.load(this.words, W_GATE) === gate.waiting
  }

  letGo(): void {
    Atomics.store(this.words, W_GATE, gate.open)
    Atomics.notify(this.words, W_GATE)
  }

  private write(kind: FaultKind, file: number, reads: number, delayMs: number, skip: number, door: number): void {
    const { words } = this
    Atomics.store(words, W_KIND, 0)
    Atomics.store(words, W_SKIP, -1)
    Atomics.store(words, W_PICKED_FILE, -1)
    Atomics.store(words, W_FILE, file)
    Atomics.store(words, W_READS, reads)
    Atomics.store(words, W_DELAY, delayMs)
    Atomics.store(words, W_GATE, door)
    Atomics.notify(words, W_GATE)
    Atomics.store(words, W_KIND, KINDS.indexOf(kind))
    Atomics.store(words, W_SKIP, skip)
  }
}

/** The reader's side. */
export function withFaults(read: ReadBytes, buffer: SharedArrayBuffer): ReadBytes {
  const words = new Int32Array(buffer)
  return (file, target, position) => {
    const delayMs = Atomics.load(words, W_DELAY)
    if (delayMs > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, delayMs)
    switch (faultFor(words, file, position, target.length)) {
      case 'error':
        throw Object.assign(new Error('EIO: injected'), { code: 'EIO' })
      case 'short':
        return target.length > 1 && position % 2 === 0
          ? read(file, target.subarray(0, (target.length >> 1) | 1), position)
          : 0
      case 'end':
        return 0
      case 'flip': {
        const got = read(file, target, position)
        target[got >> 1] ^= 1
        return got
      }
      default:
        return read(file, target, position)
    }
  }
}

function faultFor(words: Int32Array, file: number, position: number, size: number): FaultKind {
  if (Atomics.load(words, W_SKIP) >= 0 || Atomics.load(words, W_PICKED_FILE) >= 0) {
    if (!isPicked(words, file, position, size)) return 'none'
    waitAtGate(words)
  }
  const kind = KINDS[Atomics.load(words, W_KIND)]
  const only = Atomics.load(words, W_FILE)
  if (kind === 'none' || (only >= 0 && only !== file)) return 'none'
  for (;;) {
    const left = Atomics.load(words, W_READS)
    if (left <= 0) return left < 0 ? kind : 'none'
    if (Atomics.compareExchange(words, W_READS, left, left - 1) === left) return kind
  }
}

function isPicked(words: Int32Array, file: number, position: number, size: number): boolean {
  const picked = Atomics.load(words, W_PICKED_FILE)
  if (picked >= 0) {
    return (
      picked === file && position >= Atomics.load(words, W_PICKED_FROM) && position < Atomics.load(words, W_PICKED_TO)
    )
  }
  if (Atomics.sub(words, W_SKIP, 1) !== 0) return false
  Atomics.store(words, W_PICKED_FROM, position)
  Atomics.store(words, W_PICKED_TO, position + size)
  Atomics.store(words, W_PICKED_FILE, file)
  return true
}

function waitAtGate(words: Int32Array): void {
  if (Atomics.compareExchange(words, W_GATE, gate.shut, gate.waiting) === gate.open) return
  while (Atomics.load(words, W_GATE) === gate.waiting) Atomics.wait(words, W_GATE, gate.waiting)
}
