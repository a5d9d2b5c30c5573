// The shared words through which the main thread gives jobs to the compute workers and the leader gives expert waves to
// the others. The main thread writes a job only while no job runs; the leader writes a wave only before a barrier. So
// plain loads and stores do, except for the words that somebody waits on or that change while a job runs.
import { TEAM_WORDS } from './team.js'

export interface BoardShape {
  readonly threads: number
  readonly chunkTokens: number
  readonly layers: number
  readonly fullLayers: number
  readonly experts: number
  readonly headRows: number
}

/** One run of a job: rows [rowStart, rowStart + rows) are consecutive tokens of a sequence from `position` on. */
export interface JobRun {
  readonly rowStart: number
  readonly rows: number
  readonly position: number
  readonly sequence: number
  readonly pageBase: number // of the run's pages on the board
}

/** An expert in a slot and the (row, rank) pairs that it serves: [pairStart, pairStart + pairs) of the sorted list. */
export interface WaveEntry {
  bank: number
  address: number
  pairStart: number
  pairs: number
}

/** What the leader tells the others at a wave's barrier. */
export const WAVE = { experts: 0, lastExperts: 1, abandon: 2 } as const

/** Parts of a job. A step is all of them; a probe goes layer by layer. */
export interface JobParts {
  readonly embed: boolean
  readonly firstLayer: number
  readonly endLayer: number
  readonly headRows: readonly number[] // rows whose logits are wanted
  readonly argmax: boolean
  /** Leave every intermediate of the last layer where the main thread can read it. */
  readonly probe: boolean
}

/** Pages that the rows of one job can touch at most: every run may begin and end inside a page. */
function boardPages(shape: BoardShape): number {
  return shape.chunkTokens * 2 + 1
}

const STOP = 2
const ABORT = 3 // 1: the running job should stop
const WORKERS = 15
const ROWS = 16
const RUNS = 17
const EMBED = 18
const FIRST_LAYER = 19
const END_LAYER = 20
const HEAD_COUNT = 21
const ARGMAX = 22
const PROBE = 23
const WAVE_KIND = 32
const WAVE_COUNT = 33
const TEAM = 48
const LISTS = TEAM + TEAM_WORDS

const RUN_WORDS = 5
const ENTRY_WORDS = 4

const BELL_WORDS = 16 // one cache line per worker: the job that it was given last, and whether it sleeps
const ASLEEP = 1

/** How long a worker watches for the next job before it sleeps: a decode loop comes back within it. */
const JOB_SPINS = 20_000

export class JobBoard {
  readonly teamWords: Int32Array
  readonly seconds: Float64Array // by `PHASES`, written by the leader
  readonly counters: Float64Array // by `COUNTERS`, written by the leader
  readonly waited: Float64Array // [1]: seconds that the leader has waited for other workers
  readonly resident: Uint8Array // [layers, experts], 1: in memory; written by the leader while jobs run
  private readonly words: Int32Array
  private jobs = 0
  private readonly bellList: number
  private readonly tokenList: number
  private readonly runList: number
  private readonly stateList: number
  private readonly headList: number
  private readonly argmaxList: number
  private readonly entryList: number
  private readonly pageList: number

  /** Bytes that a board of this shape needs. */
  readonly size: number

  constructor(
    private readonly shape: BoardShape,
    buffer?: ArrayBufferLike, // none: to ask for the size
  ) {
    let at = LISTS
    const list = (words: number) => {
      const start = at
      at += words
      return start
    }
    this.bellList = list(shape.threads * BELL_WORDS)
    this.tokenList = list(shape.chunkTokens)
    this.runList = list(shape.chunkTokens * RUN_WORDS)
    this.stateList = list(shape.chunkTokens * shape.layers * 2)
    this.headList = list(shape.headRows)
    this.argmaxList = list(shape.headRows)
    this.entryList = list(shape.experts * ENTRY_WORDS)
    this.pageList = list(boardPages(shape) * shape.fullLayers)
    const doublesAt = at + (at % 2)
    const residentAt = (doublesAt + (PHASES.length + COUNTERS.length + 1) * 2) * 4
    this.size = residentAt + shape.layers * shape.experts
    const memory = buffer ?? new ArrayBuffer(this.size)
    this.words = new Int32Array(memory, 0, doublesAt)
    this.teamWords = this.words.subarray(TEAM, TEAM + TEAM_WORDS)
    this.seconds = new Float64Array(memory, doublesAt * 4, PHASES.length)
    this.counters = new Float64Array(memory, doublesAt * 4 + PHASES.length * 8, COUNTERS.length)
    this.waited = new Float64Array(memory, doublesAt * 4 + (PHASES.length + COUNTERS.length) * 8, 1)
    this.resident = new Uint8Array(memory, residentAt, shape.layers * shape.experts)
  }

  // --- the main thread -----------------------------------------------------------------------------------------------

  writeParts(parts: JobParts): void {
    const { words } = this
    words[EMBED] = parts.embed ? 1 : 0
    words[FIRST_LAYER] = parts.firstLayer
    words[END_LAYER] = parts.endLayer
    words[HEAD_COUNT] = parts.headRows.length
    words[ARGMAX] = parts.argmax ? 1 : 0
    words[PROBE] = parts.probe ? 1 : 0
    words.set(parts.headRows, this.headList)
  }

  writeRows(rows: number, runs: number): void {
    this.words[ROWS] = rows
    this.words[RUNS] = runs
  }

  writeRun(run: number, job: JobRun, tokens: readonly number[]): void {
    const { rowStart, rows, position, sequence, pageBase } = job
    this.words.set([rowStart, rows, position, sequence, pageBase], this.runList + run * RUN_WORDS)
    this.words.set(tokens, this.tokenList + rowStart)
  }

  writePage(index: number, fullLayer: number, address: number): void {
    this.words[this.pageList + index * this.shape.fullLayers + fullLayer] = address
  }

  writeState(run: number, layer: number, first: number, second: number): void {
    const at = this.stateList + (run * this.shape.layers + layer) * 2
    this.words[at] = first
    this.words[at + 1] = second
  }

  /** Starts what was written, on the first `workers` workers. The others sleep on. */
  post(workers: number): void {
    Atomics.store(this.words, ABORT, 0)
    this.words[WORKERS] = workers
    this.jobs = (this.jobs + 1) | 0 || 1
    for (let worker = 0; worker < workers; worker++) {
      const bell = this.bellList + worker * BELL_WORDS
      Atomics.store(this.words, bell, this.jobs)
      if (Atomics.load(this.words, bell + ASLEEP) === 1) Atomics.notify(this.words, bell)
    }
  }

  abort(): void {
    Atomics.store(this.words, ABORT, 1)
  }

  stop(): void {
    Atomics.store(this.words, STOP, 1)
    this.post(this.shape.threads)
  }

  argmaxOf(headRow: number): number {
    return this.words[this.argmaxList + headRow]
  }

  // --- workers -------------------------------------------------------------------------------------------------------

  /** Waits for a job other than `last` to be given to this worker; it, or 0 when the worker should end. */
  next(worker: number, last: number): number {
    const { words } = this
    const bell = this.bellList + worker * BELL_WORDS
    for (let spin = 0; spin < JOB_SPINS && Atomics.load(words, bell) === last; spin++);
    if (Atomics.load(words, bell) === last) {
      Atomics.store(words, bell + ASLEEP, 1)
      while (Atomics.load(words, bell) === last) Atomics.wait(words, bell, last)
      Atomics.store(words, bell + ASLEEP, 0)
    }
    return Atomics.load(words, STOP) === 1 ? 0 : Atomics.load(words, bell)
  }

  /** How many workers take part in the job. */
  get workers(): number {
    return this.words[WORKERS]
  }

  get aborted(): boolean {
    return Atomics.load(this.words, ABORT) !== 0
  }

  /** The word that is not 0 when the running job should stop. */
  get abortWord(): Int32Array {
    return this.words.subarray(ABORT, ABORT + 1)
  }

  get rows(): number {
    return this.words[ROWS]
  }

  get runs(): number {
    return this.words[RUNS]
  }

  get embed(): boolean {
    return this.words[EMBED] === 1
  }

  get firstLayer(): number {
    return this.words[FIRST_LAYER]
  }

  get endLayer(): number {
    return this.words[END_LAYER]
  }

  get headCount(): number {
    return this.words[HEAD_COUNT]
  }

  get argmax(): boolean {
    return this.words[ARGMAX] === 1
  }

  get probe(): boolean {
    return this.words[PROBE] === 1
  }

  headRow(i: number): number {
    return this.words[this.headList + i]
  }

  setArgmax(headRow: number, token: number): void {
    this.words[this.argmaxList + headRow] = token
  }

  token(row: number): number {
    return this.words[this.tokenList + row]
  }

  run(i: number): JobRun {
    const at = this.runList + i * RUN_WORDS
    const { words } = this
    return {
      rowStart: words[at],
      rows: words[at + 1],
      position: words[at + 2],
      sequence: words[at + 3],
      pageBase: words[at + 4],
    }
  }

  /** The n-th page that a run's rows touch in a full-attention layer: the address of its keys. */
  page(run: number, fullLayer: number, n: number): number {
    const base = this.words[this.runList + run * RUN_WORDS + 4]
    return this.words[this.pageList + (base + n) * this.shape.fullLayers + fullLayer] >>> 0
  }

  /** The two addresses of a run's state in a layer, unsigned. */
  state(run: number, layer: number, which: 0 | 1): number {
    return this.words[this.stateList + (run * this.shape.layers + layer) * 2 + which] >>> 0
  }

  setWave(kind: number, count: number): void {
    this.words[WAVE_KIND] = kind
    this.words[WAVE_COUNT] = count
  }

  get waveKind(): number {
    return this.words[WAVE_KIND]
  }

  get waveCount(): number {
    return this.words[WAVE_COUNT]
  }

  setEntry(i: number, entry: WaveEntry): void {
    const at = this.entryList + i * ENTRY_WORDS
    this.words[at] = entry.bank
    this.words[at + 1] = entry.address
    this.words[at + 2] = entry.pairStart
    this.words[at + 3] = entry.pairs
  }

  readEntry(i: number, into: WaveEntry): void {
    const at = this.entryList + i * ENTRY_WORDS
    into.bank = this.words[at]
    into.address = this.words[at + 1] >>> 0
    into.pairStart = this.words[at + 2]
    into.pairs = this.words[at + 3]
  }
}

/** What the leader's time is counted under. */
export const PHASES = ['mixer', 'router', 'experts', 'head', 'stall'] as const

/** What the leader counts of experts. */
export const COUNTERS = [
  'expertHits',
  'expertMisses',
  'prefetchHits',
  'prefetchReads',
  'prefetchWastedBytes',
  'stallSeconds',
  'expertSlotsUsed',
] as const
