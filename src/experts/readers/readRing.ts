// How reads are asked for and answered through shared memory: one thread asks (the leader of the compute workers, or the
// main thread), several reader threads answer, or one that has an event loop. An entry is one read; two rings of entry numbers, demand and prefetch, say
// what to read next, and readers look at the demand ring first. Knows nothing of files: where the bytes come from is the
// reader's business (a file in Node, browser storage or a server in a tab). The buffer is a plain one where asker and
// reader are one thread, and then nobody may wait.
//
// The life of an entry: idle → queued → reading → done or failed → idle. Only the asker makes it queued and idle again;
// the step from queued to reading is a compare-and-swap, so that a read that still waits can be called off, or be put
// into the demand ring as well, and is yet read once: whoever comes second finds it no longer queued.
import { noReads, ReadCounters, type ReadTotals } from './readCounters.js'

export const readState = { idle: 0, queued: 1, reading: 2, done: 3, failed: 4 } as const

/** Readers take demands first. */
export type ReadPriority = 'demand' | 'prefetch'

export interface ReadRequest {
  readonly file: number
  readonly offset: number // in the file, bytes
  readonly size: number
  readonly bank: number // which shared memory
  readonly target: number // offset in it, bytes
}

export interface ReadFailure {
  readonly code: string // 'EIO', …; empty for a read that came up short
  readonly got: number // bytes that were read
}

/** How often a reader looks for work where it can neither block nor be called. */
const POLL_MS = 2

type WaitAsync = (words: Int32Array, index: number, value: number) => { readonly value: Promise<string> | string }
const { waitAsync } = Atomics as { waitAsync?: WaitAsync }

// Control words.
const WORK = 0 // counts all submissions; readers that take prefetches too wait on it when idle
const ANSWERS = 1 // counts ended reads; the asker waits on it
const STOPPED = 2
const LOST_READERS = 3
const UNDER_WAY = 4 // reads under way
const DEMAND_HEAD = 5
const DEMAND_TAIL = 6
const AHEAD_HEAD = 7
const AHEAD_TAIL = 8
const DEMAND_WORK = 9 // counts demands; readers that take nothing else wait on it
const ASLEEP = 10 // the asker is not looking, and wants to be called
const YIELDS = 11 // reads ahead do not begin while a demand is open
const OPEN_DEMANDS = 12 // demands that wait or are being read
const CONTROL_WORDS = 16

// Words of an entry.
const W_STATE = 0
const W_FILE = 1
const W_SIZE = 2
const W_BANK = 3
const W_GOT = 4
const W_CODE = 5 // 3 words, 12 characters
const W_DEMAND = 12 // somebody waits for it: 0 no, 1 yes, 2 it has ended
const F_OFFSET = 4 // doubles, counted from the entry's start
const F_TARGET = 5
const ENTRY_WORDS = 16

/** The words of the shared memory; every thread makes its own over the same buffer. */
export class ReadRing {
  readonly entries: number
  readonly readers: number
  private readonly words: Int32Array
  private readonly doubles: Float64Array
  private readonly capacity: number // of each ring, a power of two
  private readonly demandRing: number // word offsets
  private readonly aheadRing: number
  private readonly entryBase: number
  private readonly counters: readonly ReadCounters[] // by reader
  private readonly busyBase: number // offset in doubles of two of them: busy seconds, when the present busy span began

  static create(entries: number, readers: number): SharedArrayBuffer
  static create(entries: number, readers: number, shared: boolean): ArrayBufferLike
  static create(entries: number, readers: number, shared = true): ArrayBufferLike {
    const capacity = ringCapacity(entries)
    const words = CONTROL_WORDS + 2 * capacity + entries * ENTRY_WORDS
    const bytes = words * 4 + (readers * ReadCounters.length + 2) * 8
    const buffer = shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes)
    const header = new Int32Array(buffer)
    header[CONTROL_WORDS - 2] = entries
    header[CONTROL_WORDS - 1] = readers
    return buffer
  }

  constructor(readonly buffer: ArrayBufferLike) {
    this.words = new Int32Array(buffer)
    this.doubles = new Float64Array(buffer)
    this.entries = this.words[CONTROL_WORDS - 2]
    this.readers = this.words[CONTROL_WORDS - 1]
    this.capacity = ringCapacity(this.entries)
    this.demandRing = CONTROL_WORDS
    this.aheadRing = this.demandRing + this.capacity
    this.entryBase = this.aheadRing + this.capacity
    const counterBase = (this.entryBase + this.entries * ENTRY_WORDS) / 2
    const { length } = ReadCounters
    this.counters = Array.from({ length: this.readers }, (_, reader) => {
      const at = counterBase + reader * length
      return new ReadCounters(this.doubles.subarray(at, at + length))
    })
    this.busyBase = counterBase + this.readers * length
  }

  // --- the asker ---------------------------------------------------------------------------------------------------

  submit(entry: number, request: ReadRequest, ahead: boolean): void {
    const at = this.entryBase + entry * ENTRY_WORDS
    this.words[at + W_FILE] = request.file
    this.words[at + W_SIZE] = request.size
    this.words[at + W_BANK] = request.bank
    this.doubles[at / 2 + F_OFFSET] = request.offset
    this.doubles[at / 2 + F_TARGET] = request.target
    Atomics.store(this.words, at + W_DEMAND, 0)
    if (!ahead) this.openDemand(entry)
    Atomics.store(this.words, at + W_STATE, readState.queued)
    this.push(entry, ahead)
  }

  /** A read that waits among the prefetches is now wanted. */
  promote(entry: number): void {
    this.openDemand(entry)
    if (this.state(entry) === readState.queued) this.push(entry, false)
  }

  /** Calls off a read that has not begun. False: it has, and will end. */
  cancel(entry: number): boolean {
    const at = this.entryBase + entry * ENTRY_WORDS + W_STATE
    const isCalledOff = Atomics.compareExchange(this.words, at, readState.queued, readState.idle) === readState.queued
    if (isCalledOff) this.closeDemand(entry)
    return isCalledOff
  }

  state(entry: number): number {
    return Atomics.load(this.words, this.entryBase + entry * ENTRY_WORDS + W_STATE)
  }

  /** After done or failed: the entry may be used again. */
  settle(entry: number): void {
    Atomics.store(this.words, this.entryBase + entry * ENTRY_WORDS + W_STATE, readState.idle)
  }

  failure(entry: number): ReadFailure {
    const at = this.entryBase + entry * ENTRY_WORDS
    let code = ''
    for (let i = 0; i < 12; i++) {
      const char = (this.words[at + W_CODE + (i >> 2)] >>> ((i & 3) * 8)) & 255
      if (char !== 0) code += String.fromCharCode(char)
    }
    return { code, got: this.words[at + W_GOT] }
  }

  /** Counts ended reads; compare with an older value, or wait for it to change. */
  get answers(): number {
    return Atomics.load(this.words, ANSWERS)
  }

  /** Blocks until a read ends after `seen` was looked at, or the time is over. */
  waitForAnswer(seen: number, timeoutMs: number): void {
    Atomics.wait(this.words, ANSWERS, seen, timeoutMs)
  }

  /** Whether reads ahead wait until no demand is open: the disk is then the demand's alone, but for what has begun. */
  set yieldsToDemands(on: boolean) {
    Atomics.store(this.words, YIELDS, on ? 1 : 0)
  }

  /** Whether readers must call an asker that has an event loop: it has to look once more after it has said so. */
  set isAsleep(on: boolean) {
    Atomics.store(this.words, ASLEEP, on ? 1 : 0)
  }

  get isAsleep(): boolean {
    return Atomics.load(this.words, ASLEEP) !== 0
  }

  /** Readers that ended without being asked to: reads they had begun will never end. */
  get lostReaders(): number {
    return Atomics.load(this.words, LOST_READERS)
  }

  totals(): ReadTotals {
    const totals = noReads(this.doubles[this.busyBase])
    for (const counters of this.counters) counters.addTo(totals)
    return totals
  }

  // --- readers -----------------------------------------------------------------------------------------------------

  /** The next read for a reader, now in state reading; -1 where there is none. */
  takeEntry(aheadToo: boolean): number {
    const entry = this.pop(DEMAND_HEAD, DEMAND_TAIL, this.demandRing)
    if (entry >= 0 || !aheadToo) return entry
    if (Atomics.load(this.words, YIELDS) !== 0 && Atomics.load(this.words, OPEN_DEMANDS) > 0) return -1
    return this.pop(AHEAD_HEAD, AHEAD_TAIL, this.aheadRing)
  }

  /** The reads of one kind that wait, in the order in which they were asked for. */
  queued(ahead: boolean): number[] {
    const [head, tail, ring] = ahead
      ? [AHEAD_HEAD, AHEAD_TAIL, this.aheadRing]
      : [DEMAND_HEAD, DEMAND_TAIL, this.demandRing]
    const end = Atomics.load(this.words, tail)
    const found = new Set<number>()
    for (let at = Atomics.load(this.words, head); at !== end; at = (at + 1) | 0) {
      const entry = Atomics.load(this.words, ring + (at & (this.capacity - 1)))
      if (this.state(entry) === readState.queued) found.add(entry)
    }
    return [...found]
  }

  /** Takes one of those, out of turn; false where it was called off, or taken. Its place in the ring is passed over. */
  take(entry: number): boolean {
    const state = this.entryBase + entry * ENTRY_WORDS + W_STATE
    return Atomics.compareExchange(this.words, state, readState.queued, readState.reading) === readState.queued
  }

  /** Counts what this kind of reader may take. */
  submissions(aheadToo: boolean): number {
    return Atomics.load(this.words, aheadToo ? WORK : DEMAND_WORK)
  }

  waitForWork(seen: number, aheadToo: boolean): void {
    Atomics.wait(this.words, aheadToo ? WORK : DEMAND_WORK, seen)
  }

  /** The same for a reader that may not block: resolves when something was submitted after `seen` was looked at. */
  async workArrives(seen: number): Promise<void> {
    if (waitAsync) await waitAsync(this.words, WORK, seen).value
    else if (this.submissions(true) === seen) await new Promise(resolve => setTimeout(resolve, POLL_MS))
  }

  request(entry: number): ReadRequest {
    const at = this.entryBase + entry * ENTRY_WORDS
    return {
      file: this.words[at + W_FILE],
      size: this.words[at + W_SIZE],
      bank: this.words[at + W_BANK],
      offset: this.doubles[at / 2 + F_OFFSET],
      target: this.doubles[at / 2 + F_TARGET],
    }
  }

  readBegins(nowMs: number): void {
    if (Atomics.add(this.words, UNDER_WAY, 1) === 0) this.doubles[this.busyBase + 1] = nowMs
  }

  readEnds(entry: number, reader: number, bytes: number, beganMs: number, nowMs: number, failure?: ReadFailure): void {
    if (Atomics.sub(this.words, UNDER_WAY, 1) === 1) {
      this.doubles[this.busyBase] += (nowMs - this.doubles[this.busyBase + 1]) / 1000
    }
    this.counters[reader].ended(bytes, nowMs - beganMs)
    const at = this.entryBase + entry * ENTRY_WORDS
    if (failure) {
      this.words[at + W_GOT] = failure.got
      for (let i = 0; i < 3; i++) this.words[at + W_CODE + i] = 0
      for (let i = 0; i < Math.min(12, failure.code.length); i++) {
        this.words[at + W_CODE + (i >> 2)] |= (failure.code.charCodeAt(i) & 255) << ((i & 3) * 8)
      }
    }
    this.closeDemand(entry)
    Atomics.store(this.words, at + W_STATE, failure ? readState.failed : readState.done)
    Atomics.add(this.words, ANSWERS, 1)
    Atomics.notify(this.words, ANSWERS)
  }

  countRetry(reader: number): void {
    this.counters[reader].retried()
  }

  // --- both --------------------------------------------------------------------------------------------------------

  get stopped(): boolean {
    return Atomics.load(this.words, STOPPED) !== 0
  }

  /** Readers finish the read they are in and leave. */
  stop(): void {
    Atomics.store(this.words, STOPPED, 1)
    this.wake(Number.POSITIVE_INFINITY, false)
    this.wake(Number.POSITIVE_INFINITY, true)
  }

  /** A reader died: whoever waits must look. */
  readerLost(): void {
    Atomics.add(this.words, LOST_READERS, 1)
    Atomics.add(this.words, ANSWERS, 1)
    Atomics.notify(this.words, ANSWERS)
  }

  private openDemand(entry: number): void {
    Atomics.add(this.words, OPEN_DEMANDS, 1)
    const at = this.entryBase + entry * ENTRY_WORDS + W_DEMAND
    if (Atomics.compareExchange(this.words, at, 0, 1) !== 0) this.oneDemandLess() // it is one already, or has ended
  }

  private closeDemand(entry: number): void {
    const at = this.entryBase + entry * ENTRY_WORDS + W_DEMAND
    if (Atomics.exchange(this.words, at, 2) === 1) this.oneDemandLess()
  }

  private oneDemandLess(): void {
    const isLast = Atomics.sub(this.words, OPEN_DEMANDS, 1) === 1
    if (!isLast || Atomics.load(this.words, YIELDS) === 0) return
    // What is pushed after this look wakes a reader itself.
    const hasAhead = Atomics.load(this.words, AHEAD_HEAD) !== Atomics.load(this.words, AHEAD_TAIL)
    if (hasAhead) this.wake(Number.POSITIVE_INFINITY, true)
  }

  // One reader per read: waking them all would take the processor from the compute threads.
  private wake(count: number, ahead: boolean): void {
    Atomics.add(this.words, WORK, 1)
    if (!ahead) {
      Atomics.add(this.words, DEMAND_WORK, 1)
      if (Atomics.notify(this.words, DEMAND_WORK, count) > 0) return
    }
    Atomics.notify(this.words, WORK, count)
  }

  private push(entry: number, ahead: boolean): void {
    const [head, tail, ring] = ahead
      ? [AHEAD_HEAD, AHEAD_TAIL, this.aheadRing]
      : [DEMAND_HEAD, DEMAND_TAIL, this.demandRing]
    const at = Atomics.load(this.words, tail)
    // Entries that were called off or promoted stay in their ring until a reader passes over them, so a ring can be
    // full of those for a moment; readers empty it without reading anything.
    while (((at - Atomics.load(this.words, head)) | 0) >= this.capacity) {
      if (this.buffer instanceof ArrayBuffer) {
        this.dropOver(head, tail, ring)
        this.push(entry, ahead)
        return
      }
      if (this.lostReaders > 0) return // it will not be read: whoever waits for it sees that too
      this.wake(1, ahead)
      Atomics.wait(this.words, ANSWERS, this.answers, 1)
    }
    Atomics.store(this.words, ring + (at & (this.capacity - 1)), entry)
    Atomics.store(this.words, tail, (at + 1) | 0)
    this.wake(1, ahead)
  }

  /** Leaves each entry that still waits once in a ring. */
  private dropOver(head: number, tail: number, ring: number): void {
    const { words } = this
    const live = new Set<number>()
    for (let at = words[head]; at !== words[tail]; at = (at + 1) | 0) {
      const entry = words[ring + (at & (this.capacity - 1))]
      if (this.state(entry) === readState.queued) live.add(entry)
    }
    words[tail] = words[head]
    for (const entry of live) {
      words[ring + (words[tail] & (this.capacity - 1))] = entry
      words[tail] = (words[tail] + 1) | 0
    }
  }

  private pop(head: number, tail: number, ring: number): number {
    for (;;) {
      const at = Atomics.load(this.words, head)
      if (at === Atomics.load(this.words, tail)) return -1
      const entry = Atomics.load(this.words, ring + (at & (this.capacity - 1)))
      if (Atomics.compareExchange(this.words, head, at, (at + 1) | 0) !== at) continue
      if (this.take(entry)) return entry
    }
  }
}

/** Codes that are not those of the system. At most 12 characters. */
const failureTexts: Readonly<Record<string, string>> = {
  UNREACHABLE: 'the server cannot be reached and the expert is not in the cache',
  NO_RANGES: 'the server does not send parts of files',
  FILE_CHANGED: 'the file on the server has changed: open the model again',
  SHORT_BODY: 'the server sent less than it promised',
  CHECKSUM: 'its bytes do not match their checksum: the file is damaged, or is being written',
}

export function failureText(failure: ReadFailure, size: number): string {
  if (failure.code in failureTexts) return failureTexts[failure.code]
  if (failure.code.startsWith('HTTP_')) return `the server answered with status ${failure.code.slice(5)}`
  if (failure.code !== '') return `reading failed with ${failure.code}`
  return `read ${failure.got} of ${size} bytes: the file is too short`
}

function ringCapacity(entries: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(16, 4 * entries)))
}
