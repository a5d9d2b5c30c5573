// Routing drawn by dice, as a trace: experts of each layer by Zipf's law, with prompts in between.
import type { RoutingTrace, TraceStep } from '#moeflux/lab/traces/routingTrace.js'
import { seededRandom } from '../random.js'

export interface RandomTrace {
  readonly layers: number
  readonly experts: number
  readonly expertsPerToken: number
  readonly stepTokens: readonly number[]
  readonly skew: number // exponent of Zipf's law; 0: all alike
  readonly seed: number
}

export function randomTrace({ layers, experts, expertsPerToken, stepTokens, skew, seed }: RandomTrace): RoutingTrace {
  const random = seededRandom(seed)
  const ranks = Array.from({ length: layers }, () => shuffled(experts, random))
  const steps = stepTokens.map((tokens): TraceStep => {
    const chosen = ranks.flatMap(rank =>
      Array.from({ length: tokens }, () => choose(rank, expertsPerToken, skew, random)),
    )
    return { tokens, experts: Uint16Array.from(chosen.flat()) }
  })
  const engine = { backend: 'wasm', policy: 'lrfu', slots: 1, hits: 0, misses: 1, computeSecondsPerToken: 0.01 }
  return { model: 'dice', layers, experts, expertsPerToken, expertBytes: 100, engine, steps }
}

/** K different ones: the largest of log-weights with Gumbel noise. */
function choose(rank: readonly number[], count: number, skew: number, random: () => number): number[] {
  const scores = rank.map((place, expert) => [-skew * Math.log(place + 1) - Math.log(-Math.log(random())), expert])
  scores.sort((a, b) => b[0] - a[0])
  return scores.slice(0, count).map(([, expert]) => expert)
}

function shuffled(count: number, random: () => number): number[] {
  const order = Array.from({ length: count }, (_, i) => i)
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1))
    ;[order[i], order[j]] = [order[j], order[i]]
  }
  return order
}
