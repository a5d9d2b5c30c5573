// Guesses what a layer's router will pick while the layer before still computes. EarlyRouter runs
// the router on the residual stream as it is now, which is close to what it will be, by the rule
// that the layer itself chooses by (ChoiceRule); PreviousExperts has what each sequence's last
// token chose. The leader's alone, for a few rows; a wrong guess costs a read. Layers are counted
// among those with experts.
import type { WasmMemory } from '../../../base/wasmTypes.js'
import { countPicks, mostPicked } from '../../../experts/prefetch.js'
import type { PlacedMoe, Weights } from '../memory/placedModel.js'
import { PRIVATE_ROWS, type Rows } from '../memory/scratch.js'
import { type Lane, type Need, needsOf } from './workerOps.js'

/**
 * Rows of a prompt that are asked: two percent of the leader's work, and enough to keep a slow disk
 * busy meanwhile.
 */
const SAMPLED_ROWS = 64

/**
 * Sequences whose last picks are remembered; the engine gives a sequence a new number when it
 * forgets.
 */
const REMEMBERED = 256

/** A router and what comes before it. */
interface EarlyLayer {
  readonly router: Weights
  readonly norm: number
  readonly needs: readonly Need[]
  readonly rule: ChoiceRule
}

export class EarlyRouter {
  private readonly routers: readonly EarlyLayer[] // per layer with experts
  private readonly previous = new PreviousExperts()
  private readonly known = new Set<number>() // in order of last use
  private readonly picks: Uint32Array // [PRIVATE_ROWS, K]

  constructor(
    private readonly lane: Lane,
    home: WasmMemory,
  ) {
    this.routers = lane.model.layers.flatMap(({ feedForward, postAttentionNorm: norm }) => {
      if (feedForward.kind !== 'moe') return []
      const { router } = feedForward
      return [{ router, norm, needs: needsOf(router), rule: new ChoiceRule(feedForward) }]
    })
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

  /**
   * Experts that `layer` will probably want for a few rows: by its router, and by the tokens
   * before.
   */
  guesses(layer: number): ArrayLike<number>[] {
    const { board, rows, model } = this.lane
    this.route(layer, 0, rows, 1)
    const before: number[] = []
    for (let run = 0; run < board.runs; run++) before.push(...this.previous.of(board.run(run).sequence, layer))
    return [this.picks.subarray(0, rows * model.expertsPerToken), before]
  }

  /**
   * Experts that `layer` will probably want for a prompt: those that some of its rows would pick,
   * the most picked first.
   */
  wanted(layer: number): number[] {
    const { rows, model } = this.lane
    const step = Math.ceil(rows / SAMPLED_ROWS)
    const sampled = Math.ceil(rows / step)
    const counts = new Map<number, number>()
    for (let first = 0; first < sampled; first += PRIVATE_ROWS) {
      const count = Math.min(PRIVATE_ROWS, sampled - first)
      this.route(layer, first * step, count, step)
      countPicks(this.picks.subarray(0, count * model.expertsPerToken), counts)
    }
    return mostPicked(counts)
  }

  /** Picks for so many rows of the present step, every `step`-th from the first on. */
  private route(layer: number, first: number, count: number, step: number): void {
    const { lane } = this
    const { scratch, model } = lane
    const { hidden, early, earlyLogits, earlyWeights, earlyPicks } = scratch
    const { router, norm, needs, rule } = this.routers[layer]
    const { hiddenSize, rmsNormEps } = model.config
    const { address, stride } = early.x
    const from = hidden.address + first * hidden.stride
    lane.home.rmsNorm(address, stride, from, step * hidden.stride, norm, hiddenSize, rmsNormEps, count)
    lane.prepare(early, needs, 0, count)
    lane.residentProduct(router, early, earlyLogits, count, 0, router.rows)
    rule.choose(lane, earlyPicks.address, earlyWeights, earlyLogits, 0, count)
  }
}

/**
 * How a layer's router chooses, as the kernel takes it: for the choice itself and for guesses at
 * what it will be.
 */
export class ChoiceRule {
  private readonly rule: readonly [boolean, number, number, number, boolean, number]

  constructor({ shape, selectionBias }: PlacedMoe) {
    const { score, order, groups, renormalize, scale } = shape.router
    // The softmax of the chosen alone is that of all, renormalized.
    const sumsToOne = renormalize || order === 'topThenSoftmax'
    this.rule = [score === 'sigmoid', selectionBias, groups?.count ?? 0, groups?.used ?? 0, sumsToOne, scale]
  }

  /** Picks u32 [rows, K] and weights [rows, K] of rows [begin, end) of logits. */
  choose(lane: Lane, picks: number, weights: number, logits: Rows, begin: number, end: number): void {
    const { config, expertsPerToken } = lane.model
    const { address, stride } = logits
    const sizes = [config.numExperts, expertsPerToken] as const
    lane.home.route(picks, weights, address, stride, ...sizes, ...this.rule, begin, end, lane.own.route)
  }
}

/**
 * What each sequence's last token chose, layer by layer: a guess of what the next one will, since
 * neighbours are alike.
 */
export class PreviousExperts {
  private readonly sets = new Map<number, (readonly number[])[]>() // sequence → [layers]

  /** The routed experts of a sequence's last token in this step. */
  observe(sequence: number, layer: number, experts: ArrayLike<number>): void {
    let layers = this.sets.get(sequence)
    if (!layers) {
      layers = []
      this.sets.set(sequence, layers)
    }
    layers[layer] = Array.from(experts)
  }

  of(sequence: number, layer: number): readonly number[] {
    return this.sets.get(sequence)?.[layer] ?? []
  }

  forget(sequence: number): void {
    this.sets.delete(sequence)
  }
}
