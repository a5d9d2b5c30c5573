// Which experts a token goes to and with which weights. Ties: the lower index wins. A logit or bias that is not finite makes all
// weights NaN, chosen or not: it must not vanish.
import { areFinite } from '../../model/floats.js'
import { type RouterShape, SOFTMAX_ROUTER } from '../../model/layers.js'
import { sigmoid } from '../activation/reference.js'

interface Routing {
  readonly indices: Int32Array // [tokens, K], highest weight first
  readonly weights: Float32Array // [tokens, K]
}

/** logits [tokens, experts], selectionBias [experts] */
export function router(
  logits: Float32Array,
  experts: number,
  k: number,
  shape: RouterShape = SOFTMAX_ROUTER,
  selectionBias: Float32Array | null = null,
): Routing {
  const tokens = logits.length / experts
  const indices = new Int32Array(tokens * k)
  const weights = new Float32Array(tokens * k)
  const isBiasSound = selectionBias === null || areFinite(selectionBias)
  for (let t = 0; t < tokens; t++) {
    const row = logits.subarray(t * experts, (t + 1) * experts)
    const scores = scoresOf(row, shape, selectionBias !== null || shape.groups !== null)
    const chosen = choose(row, scores, k, shape, selectionBias)
    chosen.sort((a, b) => scores[b] - scores[a] || row[b] - row[a] || a - b)
    const isNormalized = shape.renormalize || shape.order === 'topThenSoftmax'
    const total = isNormalized ? chosen.reduce((sum, expert) => sum + scores[expert], 0) : 1
    const factor = areFinite(row) && isBiasSound ? shape.scale : Number.NaN
    for (const [rank, expert] of chosen.entries()) {
      indices[t * k + rank] = expert
      weights[t * k + rank] = (scores[expert] / total) * factor
    }
  }
  return { indices, weights }
}

/** What the weights are made of; a softmax is not divided by its sum where only order and shares of the chosen matter. */
function scoresOf(row: Float32Array, shape: RouterShape, isAddedTo: boolean): Float64Array {
  if (shape.score === 'sigmoid') return Float64Array.from(row, sigmoid)
  const max = row.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY)
  const scores = Float64Array.from(row, logit => Math.exp(logit - max))
  if (!isAddedTo && (shape.renormalize || shape.order === 'topThenSoftmax')) return scores
  const sum = scores.reduce((a, b) => a + b, 0)
  return scores.map(score => score / sum)
}

function choose(
  row: Float32Array,
  scores: Float64Array,
  k: number,
  { groups }: RouterShape,
  bias: Float32Array | null,
): number[] {
  // Logits have the order of scores, without their rounding.
  const wanted = bias === null ? row : scores.map((score, expert) => score + bias[expert])
  const better = (a: number, b: number) => wanted[b] - wanted[a] || a - b
  let candidates = Array.from(row.keys())
  if (groups !== null) {
    const size = row.length / groups.count
    const sums = Array.from({ length: groups.count }, (_, group) => {
      const own = candidates.slice(group * size, (group + 1) * size).sort(better)
      return own.slice(0, 2).reduce((sum, expert) => sum + scores[expert] + (bias?.[expert] ?? 0), 0)
    })
    const best = Array.from(sums.keys()).sort((a, b) => sums[b] - sums[a] || a - b)
    const used = new Set(best.slice(0, groups.used))
    candidates = candidates.filter(expert => used.has(Math.floor(expert / size)))
  }
  return candidates.sort(better).slice(0, k)
}
