// Guesses what a layer's router will pick while the layer before still computes: runs the router on the residual stream as
// it is now, which is close to what it will be. The leader's alone, for a few rows; a wrong guess costs a read.
import { PreviousExperts } from '../../experts/previousExperts.js'
import { type Lane, type Need, needsOf } from './lane.js'
import { PRIVATE_ROWS } from './scratch.js'

/** Of a prompt with more rows nobody is guessed: the leader would be at it for longer than the others at their work. */
export const MOST_EARLY_ROWS = 64

/** Sequences whose last picks are remembered; the engine gives a sequence a new number when it forgets. */
const REMEMBERED = 256

export class EarlyRouter {
  private readonly needs: readonly (readonly Need[])[] // per layer
  private readonly previous = new PreviousExperts()
  private readonly known = new Set<number>() // in order of last use
  private readonly picks: Uint32Array // [PRIVATE_ROWS, K]

  constructor(
    private readonly lane: Lane,
    home: WebAssembly.Memory,
  ) {
    this.needs = lane.model.layers.map(({ router }) => needsOf(router))
    const { address, rows } = lane.scratch.earlyPicks
    this.picks = new Uint32Array(home.buffer, address, rows * lane.model.expertsPerToken)
  }

  /** Remembers what each run's last row was routed to. `indices`: u32 [rows, K]. */
  observe(layer: number, indices: Uint32Array): void {
    const { board, model } = this.lane
    const k = model.expertsPerToken
    for (let run = 0; run < board.runs; run++) {
      const { rowStart, rows, sequence } = board.run(run)
      const last = rowStart + rows - 1
      this.previous.observe(sequence, layer, indices.subarray(last * k, (last + 1) * k))
      if (layer === 0) this.touch(sequence)
    }
  }

  private touch(sequence: number): void {
    this.known.delete(sequence)
    this.known.add(sequence)
    if (this.known.size <= REMEMBERED) return
    const [oldest] = this.known
    this.known.delete(oldest)
    this.previous.forget(oldest)
  }

  /** Experts that `layer` will probably want for the present rows: by its router, and by the tokens before. */
  guesses(layer: number): ArrayLike<number>[] {
    const { board, rows, model } = this.lane
    const picks: number[] = []
    for (let first = 0; first < rows; first += PRIVATE_ROWS) {
      const count = Math.min(PRIVATE_ROWS, rows - first)
      this.route(layer, first, count)
      picks.push(...this.picks.subarray(0, count * model.expertsPerToken))
    }
    const before: number[] = []
    for (let run = 0; run < board.runs; run++) before.push(...this.previous.of(board.run(run).sequence, layer))
    return [picks, before]
  }

  /** Picks for rows [first, first + count) of the step. */
  private route(layer: number, first: number, count: number): void {
    const { lane } = this
    const { scratch, model } = lane
    const { hidden, early, earlyLogits, earlyWeights, earlyPicks } = scratch
    const { router, postAttentionNorm } = model.layers[layer]
    const { numExperts, hiddenSize, rmsNormEps } = model.config
    const { address, stride } = early.x
    const from = hidden.address + first * hidden.stride
    lane.home.rmsNorm(address, stride, from, hidden.stride, postAttentionNorm, hiddenSize, rmsNormEps, count)
    lane.prepare(early, this.needs[layer], 0, count)
    lane.residentProduct(router, early, earlyLogits, count, 0, router.rows)
    const logits = earlyLogits.address
    const k = model.expertsPerToken
    lane.home.route(
      earlyPicks.address,
      earlyWeights,
      logits,
      earlyLogits.stride,
      numExperts,
      k,
      0,
      count,
      lane.own.route,
    )
  }
}
