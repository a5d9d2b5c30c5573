// The head for drafts on the wasm backend, from the main thread's side: a step's job stores the head's keys and values of its tokens, too,
// and a job of its own makes guesses: all of them where each is the best token, one where somebody chooses.
import { areFinite } from '../../model/floats.js'
import { rmsNorm } from '../../ops/norm/reference.js'
import type { DraftOutput, DraftRequest, DraftState } from '../backend.js'
import { GuessVocabulary } from '../draftVocabulary.js'
import type { PlacedHead } from './memory/placedModel.js'
import { HEAD_ROWS } from './memory/scratch.js'
import type { WasmSequence } from './wasmSequence.js'
import type { ActiveRun, WasmSteps } from './wasmSteps.js'

/** A chain of guesses that goes on. */
interface Chain {
  readonly request: DraftRequest
  readonly sequence: WasmSequence
  readonly firstRow: number
  readonly guesses: number[]
  readonly rare: ReadonlySet<number> // tokens that may be guessed beside the common ones
  hidden: Float32Array // [hidden]: the row before the token
  token: number
}

export class WasmDrafter {
  private readonly vocabulary: GuessVocabulary
  private readonly head: PlacedHead

  constructor(
    private readonly backend: WasmSteps,
    commonTokens?: number,
  ) {
    this.head = backend.runtime.model.draftHead as PlacedHead
    this.vocabulary = new GuessVocabulary(backend.config.vocabSize, commonTokens)
  }

  /** Before a step's job: the rows before the first tokens of its runs. */
  writeBefore(active: readonly ActiveRun[]): void {
    for (const { sequence, rowStart } of active) {
      const row = this.rowBefore(rowStart)
      // Where nothing is known, what comes of it lies before `firstRow`, and nobody reads it.
      if (sequence.draft === null) row.fill(0)
      else row.set(sequence.draft.hidden)
    }
  }

  /** After it: what the head knows when so many tokens of the run are kept. */
  stateAfter({ sequence, rowStart }: ActiveRun, kept: number): DraftState {
    const { runtime, config } = this.backend
    const hidden = runtime.rowView(runtime.model.scratch.mixerOut, rowStart + kept - 1, config.hiddenSize).slice()
    return { hidden, firstRow: sequence.draft?.firstRow ?? sequence.length + 1 }
  }

  async guess(requests: readonly DraftRequest[], signal: AbortSignal | undefined): Promise<DraftOutput[]> {
    const chains: Chain[] = []
    const together = Math.min(requests.length, HEAD_ROWS)
    for (const request of requests) {
      const sequence = request.sequence as WasmSequence
      if (sequence.draft === null) continue
      const { hidden, firstRow } = sequence.draft
      const rare = this.vocabulary.rareOf(request.text ?? [], together)
      chains.push({ request, sequence, firstRow, guesses: [], rare, hidden, token: request.token })
    }
    try {
      const most = Math.max(...chains.map(({ request }) => request.count))
      for (const { sequence } of chains) sequence.prepare(most, 0)
      const plain = chains.filter(({ request }) => request.choose === undefined)
      const chosen = chains.filter(({ request }) => request.choose !== undefined)
      for (const block of blocksOf(plain)) await this.guessAll(block, signal)
      for (const block of blocksOf(chosen)) {
        for (let open = block; open.length > 0; ) open = await this.guessNext(open, signal)
      }
    } finally {
      for (const { sequence } of chains) sequence.discard([])
    }
    return requests.map(request => ({ guesses: chains.find(chain => chain.request === request)?.guesses ?? [] }))
  }

  /** All guesses of chains that nobody chooses for: one job. */
  private async guessAll(chains: readonly Chain[], signal: AbortSignal | undefined): Promise<void> {
    const { board } = this.backend.runtime
    const passes = Math.max(...chains.map(({ request }) => request.count))
    await this.run(chains, passes, signal)
    for (const [row, { guesses, request }] of chains.entries()) {
      for (let pass = 0; pass < request.count; pass++) {
        const guess = board.argmaxOf(row, pass)
        if (guess < 0) break // not finite: whatever it is, it is no guess
        guesses.push(guess)
      }
    }
  }

  /** One more guess for each chain; those that go on. */
  private async guessNext(chains: readonly Chain[], signal: AbortSignal | undefined): Promise<Chain[]> {
    const { runtime } = this.backend
    await this.run(chains, 1, signal)
    const rows = chains.map((_, row) => this.normed(row))
    const open: Chain[] = []
    for (const [row, chain] of chains.entries()) {
      const { guesses, request } = chain
      if (runtime.board.argmaxOf(row) < 0 || !areFinite(rows[row])) continue
      const logits = runtime.logitsRow(row)
      this.vocabulary.leaveOut(logits, chain.rare)
      const guess = (await request.choose?.(logits, guesses.length)) ?? null
      if (guess === null) continue
      guesses.push(guess)
      chain.token = guess
      chain.hidden = rows[row]
      if (guesses.length < request.count) open.push(chain)
    }
    return open
  }

  private async run(chains: readonly Chain[], passes: number, signal: AbortSignal | undefined): Promise<void> {
    const { backend } = this
    const { board, pool } = backend.runtime
    const { numLayers } = backend.config
    let pageBase = 0
    for (const [row, { sequence, guesses, hidden, token, firstRow }] of chains.entries()) {
      const position = sequence.length + guesses.length
      const job = { rowStart: row, rows: 1, position, sequence: sequence.predictionKey, pageBase, firstRow }
      board.writeRun(row, job, [token])
      pageBase += backend.writePages(sequence, row, position, pageBase)
      this.rowBefore(row).set(hidden)
    }
    board.writeRows(chains.length, chains.length)
    board.writeParts({
      embed: true,
      firstLayer: numLayers,
      endLayer: numLayers + 1,
      headRows: chains.map((_, row) => row),
      argmax: true,
      probe: false,
      drafts: 'guess',
      passes,
      vocabulary: { common: this.vocabulary.common, rare: allRare(chains) },
    })
    await pool.run(backend.workersFor(chains.length), signal)
  }

  private rowBefore(row: number): Float32Array {
    const { runtime, config } = this.backend
    return runtime.rowView(runtime.model.scratch.before, row, config.hiddenSize)
  }

  /** A row of the last job after the head's norm. */
  private normed(row: number): Float32Array {
    const { runtime, config } = this.backend
    const { hidden } = runtime.model.scratch
    const x = runtime.rowView(hidden, row, config.hiddenSize)
    return rmsNorm(x, runtime.homeVector(this.head.norm, config.hiddenSize), config.rmsNormEps)
  }
}

/** Ascending. */
function allRare(chains: readonly Chain[]): number[] {
  return [...new Set(chains.flatMap(({ rare }) => [...rare]))].sort((a, b) => a - b)
}

/** As many as one job takes. */
function blocksOf(chains: readonly Chain[]): Chain[][] {
  const blocks: Chain[][] = []
  for (let first = 0; first < chains.length; first += HEAD_ROWS) blocks.push(chains.slice(first, first + HEAD_ROWS))
  return blocks
}
