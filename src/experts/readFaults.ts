// A bad disk for tests: shared words that make reads fail, come up short, take long or wait for the tester, while a model
// is open. Without the words no reader knows that this exists.
import type { ReadBytes } from './readerLoop.js'

export type FaultKind = 'none' | 'error' | 'short' | 'end' | 'flip'
const kinds: readonly FaultKind[] = ['none', 'error', 'short', 'end', 'flip']

// Words.
const wKind = 0
const wFile = 1 // -1: all
const wReads = 2 // tries that are hit; -1: all
const wDelay = 3 // ms
const wSkip = 4 // reads that pass before one is picked; -1: none is
const wPickedFile = 5 // -1: not picked yet
const wPickedFrom = 6
const wPickedTo = 7
const wGate = 8
const words = 9

const gate = { open: 0, shut: 1, waiting: 2 } as const

/** The tester's side. */
export class ReadFaults {
  readonly buffer = new SharedArrayBuffer(words * 4)
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
    return Atomics.load(this.words, wPickedFile) >= 0
  }

  /** Whether the picked read waits to be let go. */
  get isWaiting(): boolean {
    return Atomics.load(this.words, wGate) === gate.waiting
  }

  letGo(): void {
    Atomics.store(this.words, wGate, gate.open)
    Atomics.notify(this.words, wGate)
  }

  private write(kind: FaultKind, file: number, reads: number, delayMs: number, skip: number, door: number): void {
    const { words } = this
    Atomics.store(words, wKind, 0)
    Atomics.store(words, wSkip, -1)
    Atomics.store(words, wPickedFile, -1)
    Atomics.store(words, wFile, file)
    Atomics.store(words, wReads, reads)
    Atomics.store(words, wDelay, delayMs)
    Atomics.store(words, wGate, door)
    Atomics.notify(words, wGate)
    Atomics.store(words, wKind, kinds.indexOf(kind))
    Atomics.store(words, wSkip, skip)
  }
}

/** The reader's side. */
export function withFaults(read: ReadBytes, buffer: SharedArrayBuffer): ReadBytes {
  const words = new Int32Array(buffer)
  return (file, target, position) => {
    const delayMs = Atomics.load(words, wDelay)
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
  if (Atomics.load(words, wSkip) >= 0 || Atomics.load(words, wPickedFile) >= 0) {
    if (!isPicked(words, file, position, size)) return 'none'
    waitAtGate(words)
  }
  const kind = kinds[Atomics.load(words, wKind)]
  const only = Atomics.load(words, wFile)
  if (kind === 'none' || (only >= 0 && only !== file)) return 'none'
  for (;;) {
    const left = Atomics.load(words, wReads)
    if (left <= 0) return left < 0 ? kind : 'none'
    if (Atomics.compareExchange(words, wReads, left, left - 1) === left) return kind
  }
}

function isPicked(words: Int32Array, file: number, position: number, size: number): boolean {
  const picked = Atomics.load(words, wPickedFile)
  if (picked >= 0) {
    return picked === file && position >= Atomics.load(words, wPickedFrom) && position < Atomics.load(words, wPickedTo)
  }
  if (Atomics.sub(words, wSkip, 1) !== 0) return false
  Atomics.store(words, wPickedFrom, position)
  Atomics.store(words, wPickedTo, position + size)
  Atomics.store(words, wPickedFile, file)
  return true
}

function waitAtGate(words: Int32Array): void {
  if (Atomics.compareExchange(words, wGate, gate.shut, gate.waiting) === gate.open) return
  while (Atomics.load(words, wGate) === gate.waiting) Atomics.wait(words, wGate, gate.waiting)
}
