// The shared words through which the main thread gives jobs to the compute workers and the leader gives expert waves to
// the others. The main thread writes a job only while no job runs; the leader writes a wave only before a barrier that
// the others have not passed. So plain loads and stores do, except for the words that somebody waits on or that change
// while a job runs. Which thread may write which word when, and why that is enough: docs/dev/workers.md.
import { MOST_GUESSES } from '../../backend.js'
import { MOST_RARE_TOKENS } from '../../draftVocabulary.js'
import { SharedWords, type Words } from './sharedWords.js'
import { TEAM_WORDS } from './team.js'

export interface BoardShape {
  readonly threads: number
  readonly chunkTokens: number
  readonly layers: number
  readonly fullLayers: number
  readonly moeLayers: number // with experts
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
  /** The rows after the first may turn out wrong: each has a recurrent state of its own. Default false. */
  readonly guesses?: boolean
  /** The first row of keys and values that counts. Default 0. */
  readonly firstRow?: number
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
  /** Of the head for drafts: 'rows' also stores its keys and values of a step's tokens, 'guess' is its layer and logits. Default neither. */
  readonly drafts?: 'rows' | 'guess'
  /** Guesses one behind the other, each the best token after the one before. Default 1. */
  readonly passes?: number
  /** Tokens whose logits are computed: ids below `common`, and others. Default all. */
  readonly vocabulary?: { readonly common: number; readonly rare: readonly number[] }
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
const FORGET = 24 // 1: the job begins with no expert in memory
const RANKS = 25
const ENTRY_COUNT = 26
const FINISHED = 27 // the last job that ended well
const DRAFTS = 28 // 1: rows, 2: guess
const PASSES = 29
const COMMON = 30 // tokens whose logits are wanted: ids below it, -1 for all
const RARE_COUNT = 31
const WAVE_KIND = 32
const WAVE_COUNT = 33
const TEAM = 48
const LISTS = TEAM + TEAM_WORDS

const RUN_WORDS = 7
const ENTRY_WORDS = 4

const BELL_WORDS = 16 // one cache line per worker: the job that it was given last, and whether it sleeps
const ASLEEP = 1

/** How long a worker watches for the next job before it sleeps: about 100 µs. */
const JOB_SPINS = 20_000

export class JobBoard {
  readonly words: Words
  readonly teamBase = TEAM
  readonly abortWord: Int32Array // [1], not 0 when the running job should stop
  readonly seconds: Float64Array // by `PHASES`, written by the leader
  readonly counters: Float64Array // by `COUNTERS`, written by the leader
  readonly waited: Float64Array // [1]: seconds that the leader has waited for other workers
  readonly resident: Uint8Array // [layers with experts, experts], 1: in memory; written by the leader while jobs run
  private forgets = false // the main thread's: of the next job
  private readonly bellList: number
  private readonly tokenList: number
  private readonly runList: number
  private readonly stateList: number
  private readonly headList: number
  private readonly argmaxList: number
  private readonly bestList: number
  private readonly entryList: number
  private readonly pageList: number
  private readonly rareList: number

  /** Bytes that a board of this shape needs. */
  readonly size: number

  constructor(
    readonly shape: BoardShape,
    buffer?: ArrayBufferLike, // none: to ask for the size
    words?: Words, // others than those of the buffer
    private readonly jobSpins = JOB_SPINS,
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
    this.argmaxList = list(shape.headRows * MOST_GUESSES)
    this.bestList = list(shape.threads * shape.headRows)
    this.entryList = list(shape.experts * ENTRY_WORDS)
    this.pageList = list(boardPages(shape) * shape.fullLayers)
    this.rareList = list(MOST_RARE_TOKENS)
    const doublesAt = at + (at % 2)
    const residentAt = (doublesAt + (PHASES.length + COUNTERS.length + 1) * 2) * 4
    this.size = residentAt + shape.moeLayers * shape.experts
    const memory = buffer ?? new ArrayBuffer(this.size)
    this.words = words ?? new SharedWords(new Int32Array(memory, 0, doublesAt))
    this.abortWord = new Int32Array(memory, ABORT * 4, 1)
    this.seconds = new Float64Array(memory, doublesAt * 4, PHASES.length)
    this.counters = new Float64Array(memory, doublesAt * 4 + PHASES.length * 8, COUNTERS.length)
    this.waited = new Float64Array(memory, doublesAt * 4 + (PHASES.length + COUNTERS.length) * 8, 1)
    this.resident = new Uint8Array(memory, residentAt, shape.moeLayers * shape.experts)
  }

  // --- the main thread -----------------------------------------------------------------------------------------------

  writeParts(parts: JobParts): void {
    const { words } = this
    words.set(EMBED, parts.embed ? 1 : 0)
    words.set(FIRST_LAYER, parts.firstLayer)
    words.set(END_LAYER, parts.endLayer)
    words.set(HEAD_COUNT, parts.headRows.length)
    words.set(ARGMAX, parts.argmax ? 1 : 0)
    words.set(PROBE, parts.probe ? 1 : 0)
    words.set(DRAFTS, parts.drafts === undefined ? 0 : parts.drafts === 'rows' ? 1 : 2)
    words.set(PASSES, parts.passes ?? 1)
    words.set(COMMON, parts.vocabulary?.common ?? -1)
    words.set(RARE_COUNT, parts.vocabulary?.rare.length ?? 0)
    this.writeList(this.rareList, parts.vocabulary?.rare ?? [])
    this.writeList(this.headList, parts.headRows)
  }

  writeRows(rows: number, runs: number): void {
    this.words.set(ROWS, rows)
    this.words.set(RUNS, runs)
  }

  writeRun(run: number, job: JobRun, tokens: readonly number[]): void {
    const { rowStart, rows, position, sequence, pageBase, guesses = false, firstRow = 0 } = job
    const words = [rowStart, rows, position, sequence, pageBase, guesses ? 1 : 0, firstRow]
    this.writeList(this.runList + run * RUN_WORDS, words)
    this.writeList(this.tokenList + rowStart, tokens)
  }

  private writeList(at: number, values: readonly number[]): void {
    for (let i = 0; i < values.length; i++) this.words.set(at + i, values[i])
  }

  writePage(index: number, fullLayer: number, address: number): void {
    this.words.set(this.pageList + index * this.shape.fullLayers + fullLayer, address)
  }

  /** Of the run whose first row it is; of each row where a run has guesses. */
  writeState(row: number, layer: number, first: number, second: number): void {
    const at = this.stateList + (row * this.shape.layers + layer) * 2
    this.words.set(at, first)
    this.words.set(at + 1, second)
  }

  /** Of the next job, whatever it is: it begins with no expert in memory. */
  forgetExperts(): void {
    this.forgets = true
  }

  /** A job of routed experts alone: those of one layer, in slots, over rows of so many ranks. */
  writeExperts(layer: number, rows: number, ranks: number, entries: readonly WaveEntry[]): void {
    this.writeParts({
      embed: false,
      firstLayer: layer,
      endLayer: layer + 1,
      headRows: [],
      argmax: false,
      probe: false,
    })
    this.writeRows(rows, 1)
    this.words.set(RANKS, ranks)
    this.words.set(ENTRY_COUNT, entries.length)
    for (const [i, entry] of entries.entries()) this.setEntry(i, entry)
  }

  /** Starts what was written, on the first `workers` workers. The others sleep on. Only while no job runs. */
  post(workers: number): void {
    const { words, bellList } = this
    words.store(ABORT, 0)
    words.set(WORKERS, workers)
    words.set(FORGET, this.forgets ? 1 : 0)
    this.forgets = false
    const job = (words.load(bellList) + 1) | 0 || 1 // the leader has had every job
    for (let worker = 0; worker < workers; worker++) {
      const bell = bellList + worker * BELL_WORDS
      words.store(bell, job)
      if (words.load(bell + ASLEEP) === 1) words.notify(bell)
    }
  }

  /** The job that was given last. */
  get lastJob(): number {
    return this.words.load(this.bellList) // the leader has every one
  }

  /** The last job that ended well, for those who look instead of waiting for a message. */
  get finishedJob(): number {
    return this.words.load(FINISHED)
  }

  /** Asks the running job to stop. What comes after its end is forgotten with the next `post`. */
  abort(): void {
    this.words.store(ABORT, 1)
  }

  /** Ends all workers. Only while no job runs. */
  stop(): void {
    this.words.store(STOP, 1)
    this.post(this.shape.threads)
  }

  /** `pass`: which of the guesses that were made there. */
  argmaxOf(headRow: number, pass = 0): number {
    return this.words.get(this.argmaxList + pass * this.shape.headRows + headRow)
  }

  // --- workers -------------------------------------------------------------------------------------------------------

  /** Waits for a job other than `last` to be given to this worker; it, or 0 when the worker should end. */
  next(worker: number, last: number): number {
    const bell = this.bellList + worker * BELL_WORDS
    this.awaitBell(bell, last)
    return this.words.load(STOP) === 1 ? 0 : this.words.load(bell)
  }

  protected awaitBell(bell: number, last: number): void {
    const { words } = this
    for (let spin = 0; spin < this.jobSpins; spin++) {
      if (words.load(bell) !== last) return
    }
    words.store(bell + ASLEEP, 1)
    while (words.load(bell) === last) words.wait(bell, last)
    words.store(bell + ASLEEP, 0)
  }

  /** How many workers take part in the job. */
  get workers(): number {
    return this.words.get(WORKERS)
  }

  get aborted(): boolean {
    return this.words.load(ABORT) !== 0
  }

  get rows(): number {
    return this.words.get(ROWS)
  }

  get runs(): number {
    return this.words.get(RUNS)
  }

  get embed(): boolean {
    return this.words.get(EMBED) === 1
  }

  get firstLayer(): number {
    return this.words.get(FIRST_LAYER)
  }

  get endLayer(): number {
    return this.words.get(END_LAYER)
  }

  get headCount(): number {
    return this.words.get(HEAD_COUNT)
  }

  get argmax(): boolean {
    return this.words.get(ARGMAX) === 1
  }

  /** Logits are wanted of tokens below this id; null: of all. */
  get commonTokens(): number | null {
    const common = this.words.get(COMMON)
    return common < 0 ? null : common
  }

  /** And of so many others. */
  get rareTokens(): number {
    return this.words.get(RARE_COUNT)
  }

  /** Ascending. */
  rareToken(index: number): number {
    return this.words.get(this.rareList + index)
  }

  get ranks(): number {
    return this.words.get(RANKS)
  }

  get entryCount(): number {
    return this.words.get(ENTRY_COUNT)
  }

  /** The leader's: the job that it was given last has ended well. */
  finish(): void {
    this.words.store(FINISHED, this.lastJob)
  }

  get probe(): boolean {
    return this.words.get(PROBE) === 1
  }

  get drafts(): 'rows' | 'guess' | null {
    return ([null, 'rows', 'guess'] as const)[this.words.get(DRAFTS)]
  }

  /** Guesses that the job makes one behind the other. */
  get passes(): number {
    return this.words.get(PASSES)
  }

  /** Whether the job begins with no expert in memory. */
  get forgetsExperts(): boolean {
    return this.words.get(FORGET) === 1
  }

  headRow(i: number): number {
    return this.words.get(this.headList + i)
  }

  setArgmax(headRow: number, token: number, pass: number): void {
    this.words.set(this.argmaxList + pass * this.shape.headRows + headRow, token)
  }

  /** The best token of those that a worker has computed. */
  setBestOf(worker: number, headRow: number, token: number): void {
    this.words.set(this.bestList + worker * this.shape.headRows + headRow, token)
  }

  bestOf(worker: number, headRow: number): number {
    return this.words.get(this.bestList + worker * this.shape.headRows + headRow)
  }

  token(row: number): number {
    return this.words.get(this.tokenList + row)
  }

  run(i: number): Required<JobRun> {
    const at = this.runList + i * RUN_WORDS
    const { words } = this
    return {
      rowStart: words.get(at),
      rows: words.get(at + 1),
      position: words.get(at + 2),
      sequence: words.get(at + 3),
      pageBase: words.get(at + 4),
      guesses: words.get(at + 5) === 1,
      firstRow: words.get(at + 6),
    }
  }

  /** The n-th page that a run's rows touch in a full-attention layer: the address of its keys. */
  page(run: number, fullLayer: number, n: number): number {
    const base = this.words.get(this.runList + run * RUN_WORDS + 4)
    return this.words.get(this.pageList + (base + n) * this.shape.fullLayers + fullLayer) >>> 0
  }

  /** The two addresses of the state in a layer that begins at a row, unsigned. */
  state(row: number, layer: number, which: 0 | 1): number {
    return this.words.get(this.stateList + (row * this.shape.layers + layer) * 2 + which) >>> 0
  }

  setWave(kind: number, count: number): void {
    this.words.set(WAVE_KIND, kind)
    this.words.set(WAVE_COUNT, count)
  }

  get waveKind(): number {
    return this.words.get(WAVE_KIND)
  }

  get waveCount(): number {
    return this.words.get(WAVE_COUNT)
  }

  setEntry(i: number, entry: WaveEntry): void {
    const at = this.entryList + i * ENTRY_WORDS
    this.words.set(at, entry.bank)
    this.words.set(at + 1, entry.address)
    this.words.set(at + 2, entry.pairStart)
    this.words.set(at + 3, entry.pairs)
  }

  readEntry(i: number, into: WaveEntry): void {
    const at = this.entryList + i * ENTRY_WORDS
    into.bank = this.words.get(at)
    into.address = this.words.get(at + 1) >>> 0
    into.pairStart = this.words.get(at + 2)
    into.pairs = this.words.get(at + 3)
  }
}

/** What the leader's time is counted under. */
export const PHASES = ['mixer', 'router', 'experts', 'dense', 'head', 'stall'] as const

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
