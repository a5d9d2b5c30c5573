// The shared words through which the main thread gives jobs to the compute workers and the leader
// gives expert waves to the others; jobLayout.ts says where each is. The main thread writes a job
// only while none runs; the leader writes a wave only before a barrier that the others have not
// passed. So plain loads and stores do, except for words that a thread waits on or that change
// while a job runs. Who may write which word when, and why: docs/dev/workers.md.
import {
  ASLEEP,
  BELL_WORDS,
  type BoardLayout,
  type BoardShape,
  COUNTERS,
  ENTRY_WORDS,
  layoutBoard,
  PHASES,
  RUN_PAGE_BASE,
  RUN_WORDS,
  WORD,
} from './jobLayout.js'
import { SharedWords, type Words } from './sharedWords.js'

/**
 * One run of a job: rows [rowStart, rowStart + rows) are consecutive tokens of a sequence from
 * `position` on.
 */
interface JobRun {
  readonly rowStart: number
  readonly rows: number
  readonly position: number
  readonly sequence: number
  readonly pageBase: number // of the run's pages on the board
  /**
   * The rows after the first may turn out wrong: each has a recurrent state of its own. Default
   * false.
   */
  readonly guesses?: boolean
  /** The first row of keys and values that counts. Default 0. */
  readonly firstRow?: number
}

/**
 * An expert in a slot and the (row, rank) pairs that it serves: [pairStart, pairStart + pairs) of
 * the sorted list.
 */
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
  /**
   * Of the head for drafts: 'rows' also stores its keys and values of a step's tokens, 'guess' is
   * its layer and logits. Default neither.
   */
  readonly drafts?: 'rows' | 'guess'
  /** Guesses one behind the other, each the best token after the one before. Default 1. */
  readonly passes?: number
  /** Tokens whose logits are computed: ids below `common`, and others. Default all. */
  readonly vocabulary?: { readonly common: number; readonly rare: readonly number[] }
}

/** How long a worker watches for the next job before it sleeps: about 100 µs. */
const JOB_SPINS = 20_000

export class JobBoard {
  readonly words: Words
  readonly teamBase = WORD.team
  readonly abortWord: Int32Array // [1], not 0 when the running job should stop
  readonly seconds: Float64Array // by `PHASES`, written by the leader
  readonly counters: Float64Array // by `COUNTERS`, written by the leader
  readonly waited: Float64Array // [1]: seconds that the leader has waited for other workers
  readonly resident: Uint8Array // [layers with experts, experts], 1: in memory; written by the leader while jobs run
  private forgets = false // the main thread's: of the next job
  private readonly at: BoardLayout

  /** Bytes that a board of this shape needs. */
  readonly size: number

  constructor(
    readonly shape: BoardShape,
    buffer?: ArrayBufferLike, // none: to ask for the size
    words?: Words, // others than those of the buffer
    private readonly jobSpins = JOB_SPINS,
  ) {
    const at = layoutBoard(shape)
    this.at = at
    this.size = at.size
    const memory = buffer ?? new ArrayBuffer(this.size)
    this.words = words ?? new SharedWords(new Int32Array(memory, 0, at.words))
    this.abortWord = new Int32Array(memory, WORD.abort * 4, 1)
    this.seconds = new Float64Array(memory, at.seconds, PHASES.length)
    this.counters = new Float64Array(memory, at.counters, COUNTERS.length)
    this.waited = new Float64Array(memory, at.waited, 1)
    this.resident = new Uint8Array(memory, at.resident, shape.moeLayers * shape.experts)
  }

  // --- the main thread -----------------------------------------------------------------------------------------------

  writeParts(parts: JobParts): void {
    const { words } = this
    words.set(WORD.embed, parts.embed ? 1 : 0)
    words.set(WORD.firstLayer, parts.firstLayer)
    words.set(WORD.endLayer, parts.endLayer)
    words.set(WORD.headCount, parts.headRows.length)
    words.set(WORD.argmax, parts.argmax ? 1 : 0)
    words.set(WORD.probe, parts.probe ? 1 : 0)
    words.set(WORD.drafts, parts.drafts === undefined ? 0 : parts.drafts === 'rows' ? 1 : 2)
    words.set(WORD.passes, parts.passes ?? 1)
    words.set(WORD.common, parts.vocabulary?.common ?? -1)
    words.set(WORD.rareCount, parts.vocabulary?.rare.length ?? 0)
    this.writeList(this.at.rares, parts.vocabulary?.rare ?? [])
    this.writeList(this.at.heads, parts.headRows)
  }

  writeRows(rows: number, runs: number): void {
    this.words.set(WORD.rows, rows)
    this.words.set(WORD.runs, runs)
  }

  writeRun(run: number, job: JobRun, tokens: readonly number[]): void {
    const { rowStart, rows, position, sequence, pageBase, guesses = false, firstRow = 0 } = job
    const words = [rowStart, rows, position, sequence, pageBase, guesses ? 1 : 0, firstRow]
    this.writeList(this.at.runs + run * RUN_WORDS, words)
    this.writeList(this.at.tokens + rowStart, tokens)
  }

  private writeList(at: number, values: readonly number[]): void {
    for (let i = 0; i < values.length; i++) this.words.set(at + i, values[i])
  }

  writePage(index: number, fullLayer: number, address: number): void {
    this.words.set(this.at.pages + index * this.shape.fullLayers + fullLayer, address)
  }

  /** Of the run whose first row it is; of each row where a run has guesses. */
  writeState(row: number, layer: number, first: number, second: number): void {
    const at = this.at.states + (row * this.shape.layers + layer) * 2
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
    this.words.set(WORD.ranks, ranks)
    this.words.set(WORD.entryCount, entries.length)
    for (const [i, entry] of entries.entries()) this.setEntry(i, entry)
  }

  /**
   * Starts what was written, on the first `workers` workers. The others sleep on. Only while no job
   * runs.
   */
  post(workers: number): void {
    const { words } = this
    const { bells } = this.at
    words.store(WORD.abort, 0)
    words.set(WORD.workers, workers)
    words.set(WORD.forget, this.forgets ? 1 : 0)
    this.forgets = false
    const job = (words.load(bells) + 1) | 0 || 1 // the leader has had every job
    for (let worker = 0; worker < workers; worker++) {
      const bell = bells + worker * BELL_WORDS
      words.store(bell, job)
      if (words.load(bell + ASLEEP) === 1) words.notify(bell)
    }
  }

  /** The job that was given last. */
  get lastJob(): number {
    return this.words.load(this.at.bells) // the leader has every one
  }

  /** The last job that ended well, for those who look instead of waiting for a message. */
  get finishedJob(): number {
    return this.words.load(WORD.finished)
  }

  /** Asks the running job to stop. What comes after its end is forgotten with the next `post`. */
  abort(): void {
    this.words.store(WORD.abort, 1)
  }

  /** Ends all workers. Only while no job runs. */
  stop(): void {
    this.words.store(WORD.stop, 1)
    this.post(this.shape.threads)
  }

  /** `pass`: which of the guesses that were made there. */
  argmaxOf(headRow: number, pass = 0): number {
    return this.words.get(this.at.argmaxes + pass * this.shape.headRows + headRow)
  }

  // --- workers -------------------------------------------------------------------------------------------------------

  /**
   * Waits for a job other than `last` to be given to this worker; it, or 0 when the worker should
   * end.
   */
  next(worker: number, last: number): number {
    const bell = this.at.bells + worker * BELL_WORDS
    this.awaitBell(bell, last)
    return this.words.load(WORD.stop) === 1 ? 0 : this.words.load(bell)
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
    return this.words.get(WORD.workers)
  }

  get aborted(): boolean {
    return this.words.load(WORD.abort) !== 0
  }

  get rows(): number {
    return this.words.get(WORD.rows)
  }

  get runs(): number {
    return this.words.get(WORD.runs)
  }

  get embed(): boolean {
    return this.words.get(WORD.embed) === 1
  }

  get firstLayer(): number {
    return this.words.get(WORD.firstLayer)
  }

  get endLayer(): number {
    return this.words.get(WORD.endLayer)
  }

  get headCount(): number {
    return this.words.get(WORD.headCount)
  }

  get argmax(): boolean {
    return this.words.get(WORD.argmax) === 1
  }

  /** Logits are wanted of tokens below this id; null: of all. */
  get commonTokens(): number | null {
    const common = this.words.get(WORD.common)
    return common < 0 ? null : common
  }

  /** And of so many others. */
  get rareTokens(): number {
    return this.words.get(WORD.rareCount)
  }

  /** Ascending. */
  rareToken(index: number): number {
    return this.words.get(this.at.rares + index)
  }

  get ranks(): number {
    return this.words.get(WORD.ranks)
  }

  get entryCount(): number {
    return this.words.get(WORD.entryCount)
  }

  /** The leader's: the job that it was given last has ended well. */
  finish(): void {
    this.words.store(WORD.finished, this.lastJob)
  }

  get probe(): boolean {
    return this.words.get(WORD.probe) === 1
  }

  get drafts(): 'rows' | 'guess' | null {
    return ([null, 'rows', 'guess'] as const)[this.words.get(WORD.drafts)]
  }

  /** Guesses that the job makes one behind the other. */
  get passes(): number {
    return this.words.get(WORD.passes)
  }

  /** Whether the job begins with no expert in memory. */
  get forgetsExperts(): boolean {
    return this.words.get(WORD.forget) === 1
  }

  headRow(i: number): number {
    return this.words.get(this.at.heads + i)
  }

  setArgmax(headRow: number, token: number, pass: number): void {
    this.words.set(this.at.argmaxes + pass * this.shape.headRows + headRow, token)
  }

  /** The best token of those that a worker has computed. */
  setBestOf(worker: number, headRow: number, token: number): void {
    this.words.set(this.at.bests + worker * this.shape.headRows + headRow, token)
  }

  bestOf(worker: number, headRow: number): number {
    return this.words.get(this.at.bests + worker * this.shape.headRows + headRow)
  }

  token(row: number): number {
    return this.words.get(this.at.tokens + row)
  }

  run(i: number): Required<JobRun> {
    const at = this.at.runs + i * RUN_WORDS
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
    const base = this.words.get(this.at.runs + run * RUN_WORDS + RUN_PAGE_BASE)
    return this.words.get(this.at.pages + (base + n) * this.shape.fullLayers + fullLayer) >>> 0
  }

  /** The two addresses of the state in a layer that begins at a row, unsigned. */
  state(row: number, layer: number, which: 0 | 1): number {
    return this.words.get(this.at.states + (row * this.shape.layers + layer) * 2 + which) >>> 0
  }

  setWave(kind: number, count: number): void {
    this.words.set(WORD.waveKind, kind)
    this.words.set(WORD.waveCount, count)
  }

  get waveKind(): number {
    return this.words.get(WORD.waveKind)
  }

  get waveCount(): number {
    return this.words.get(WORD.waveCount)
  }

  setEntry(i: number, entry: WaveEntry): void {
    const at = this.at.entries + i * ENTRY_WORDS
    this.words.set(at, entry.bank)
    this.words.set(at + 1, entry.address)
    this.words.set(at + 2, entry.pairStart)
    this.words.set(at + 3, entry.pairs)
  }

  readEntry(i: number, into: WaveEntry): void {
    const at = this.at.entries + i * ENTRY_WORDS
    into.bank = this.words.get(at)
    into.address = this.words.get(at + 1) >>> 0
    into.pairStart = this.words.get(at + 2)
    into.pairs = this.words.get(at + 3)
  }
}
