// The head for drafts on the wasm backend, from the main thread's side: after a step the keys and values of its tokens, between steps
// guesses one after the other. Workers find the final-norm row before each token in `scratch.before`.
import { areFinite } from '../../model/floats.js'
import type { DraftOutput, DraftRequest } from '../backend.js'
import type { DraftState } from '../draftState.js'
import { rmsNorm } from '../reference/rmsNorm.js'
import type { PlacedHead } from './placedModel.js'
import { HEAD_ROWS } from './scratch.js'
import type { ActiveRun, WasmBackend } from './wasmBackend.js'
import type { WasmSequence } from './wasmSequence.js'

/** Tokens of a sequence with the rows before them, from a position on. */
interface HeadRun {
  readonly sequence: WasmSequence
  readonly position: number
  readonly tokens: readonly number[]
  readonly before: readonly Float32Array[] // [tokens][hidden]
  readonly firstRow: number
}

/** A chain of guesses that goes on. */
interface Chain {
  readonly request: DraftRequest
  readonly sequence: WasmSequence
  readonly state: DraftState
  readonly guesses: number[]
  hidden: Float32Array // [hidden]
  token: number
}

export class WasmDrafter {
  private readonly head: PlacedHead

  constructor(private readonly backend: WasmBackend) {
    this.head = backend.runtime.model.draftHead as PlacedHead
  }

  /** Adds the rows of a step's tokens to the head's, run by run; what it then knows, when so many tokens are kept. */
  async addRows(
    active: readonly ActiveRun[],
    signal: AbortSignal | undefined,
  ): Promise<((kept: number) => DraftState)[]> {
    const { norm } = this.backend.runtime.model
    const runs: HeadRun[] = []
    const results = active.map(({ sequence, tokens, rowStart }) => {
      const { draft, length } = sequence
      const normed = tokens.map((_, t) => this.normed(rowStart + t, norm))
      const before = draft === null ? normed.slice(0, -1) : [draft.hidden, ...normed.slice(0, -1)]
      const skipped = draft === null ? 1 : 0 // nothing is known of the token before the first
      const firstRow = draft?.firstRow ?? length + 1
      const known = tokens.slice(skipped)
      if (known.length > 0) runs.push({ sequence, position: length + skipped, tokens: known, before, firstRow })
      return (kept: number): DraftState => ({ hidden: normed[kept - 1], firstRow })
    })
    if (runs.length > 0) await this.run(runs, 'rows', signal)
    return results
  }

  async guess(requests: readonly DraftRequest[], signal: AbortSignal | undefined): Promise<DraftOutput[]> {
    const chains: Chain[] = []
    for (const request of requests) {
      const sequence = request.sequence as WasmSequence
      const { draft: state } = sequence
      if (state === null) continue
      chains.push({ request, sequence, state, guesses: [], hidden: state.hidden, token: request.token })
    }
    try {
      for (const { sequence, request } of chains) sequence.prepare(request.count, 0)
      for (let first = 0; first < chains.length; first += HEAD_ROWS) {
        let open = chains.slice(first, first + HEAD_ROWS)
        while (open.length > 0) open = await this.extend(open, signal)
      }
    } finally {
      for (const { sequence } of chains) sequence.discard([])
    }
    return requests.map(request => ({ guesses: chains.find(chain => chain.request === request)?.guesses ?? [] }))
  }

  /** One more guess for each chain; those that go on. */
  private async extend(chains: readonly Chain[], signal: AbortSignal | undefined): Promise<Chain[]> {
    const { runtime } = this.backend
    const { board } = runtime
    const runs = chains.map(({ sequence, state, guesses, hidden, token }): HeadRun => {
      const position = sequence.length + guesses.length
      return { sequence, position, tokens: [token], before: [hidden], firstRow: state.firstRow }
    })
    await this.run(runs, 'guess', signal)
    const rows = chains.map((_, row) => this.normed(row, this.head.norm))
    const best = chains.map((_, row) => board.argmaxOf(row))
    const open: Chain[] = []
    for (const [row, chain] of chains.entries()) {
      const { guesses, request } = chain
      if (best[row] < 0 || !areFinite(rows[row])) continue // whatever it is, it is no guess
      const guess = request.choose ? await request.choose(runtime.logitsRow(row), guesses.length) : best[row]
      if (guess === null) continue
      guesses.push(guess)
      chain.token = guess
      chain.hidden = rows[row]
      if (guesses.length < request.count) open.push(chain)
    }
    return open
  }

  private async run(runs: readonly HeadRun[], drafts: 'rows' | 'guess', signal: AbortSignal | undefined) {
    const { backend } = this
    const { runtime, config } = backend
    const { board, pool, model } = runtime
    let row = 0
    let pageBase = 0
    for (const [run, { sequence, position, tokens, before, firstRow }] of runs.entries()) {
      const job = { rowStart: row, rows: tokens.length, position, sequence: sequence.predictionKey, pageBase, firstRow }
      board.writeRun(run, job, tokens)
      pageBase += backend.writePages(sequence, row, position, pageBase)
      for (const [t] of tokens.entries()) {
        runtime.rowView(model.scratch.before, row + t, config.hiddenSize).set(before[t])
      }
      row += tokens.length
    }
    board.writeRows(row, runs.length)
    const isGuess = drafts === 'guess'
    board.writeParts({
      embed: true,
      firstLayer: isGuess ? config.numLayers : 0,
      endLayer: isGuess ? config.numLayers + 1 : 0,
      headRows: isGuess ? runs.map((_, i) => i) : [],
      argmax: isGuess,
      probe: false,
      drafts,
    })
    await pool.run(backend.workersFor(row), signal)
  }

  /** A row of the last job's residual stream after a norm. */
  private normed(row: number, weight: number): Float32Array {
    const { runtime, config } = this.backend
    const { hidden } = runtime.model.scratch
    const x = runtime.rowView(hidden, row, config.hiddenSize)
    return rmsNorm(x, runtime.homeVector(weight, config.hiddenSize), config.rmsNormEps)
  }
}
