// How a layer's router chooses, as the kernel takes it: for the choice itself and for guesses at what it will be.
import type { PlacedMoe } from '../memory/placedModel.js'
import type { Rows } from '../memory/scratch.js'
import type { Lane } from './workerOps.js'

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
