// Chooses the next token from logits. The order of things is that of `transformers`: penalties and biases, grammar
// mask, temperature, top-k, top-p, min-p. Selection is partial: a vocabulary of 248,320 is never sorted. Nothing here
// knows what a token means or where logits come from; the given logits are not changed.
import { OptionError } from '../../base/errors.js'
import { argmax, decay, finiteTokens, likelyTokens, nothingToChoose, sorted, sum, topTokens } from './logitScan.js'
import { Random } from './random.js'

export interface SamplerOptions {
  readonly temperature?: number // 0: greedy. Default 1
  readonly topK?: number // 0: all. Default 0
  readonly topP?: number // default 1
  readonly minP?: number // share of the best token's probability that a token needs. Default 0
  readonly repetitionPenalty?: number // over prompt and answer. Default 1
  readonly presencePenalty?: number // over the answer. Default 0
  readonly frequencyPenalty?: number // over the answer, per occurrence. Default 0
  readonly logitBias?: ReadonlyMap<number, number>
  readonly seed?: number
}

export interface TokenLogprob {
  readonly token: number
  readonly logprob: number
}

export interface SampledToken extends TokenLogprob {
  readonly top: readonly TokenLogprob[] // the most likely tokens, best first
}

/** What may be drawn. */
export interface Candidates {
  readonly tokens: Int32Array
  readonly weights: Float64Array // exp(logit - best), same order
}

export class Sampler {
  private readonly temperature: number
  private readonly scale: number // of logits, 1 / temperature
  private readonly topK: number
  private readonly topP: number
  private readonly minP: number
  private readonly random: Random
  private promptTokens: ReadonlySet<number> = new Set<number>()
  private answerCounts = new Map<number, number>()
  // Used again for every token: those of a large vocabulary are megabytes.
  private scratch = new Float32Array(0) // [vocab]
  private chosen = new Int32Array(0) // [vocab]
  private chosenWeights = new Float64Array(0) // [vocab]

  constructor(private readonly options: SamplerOptions = {}) {
    const within = (name: keyof SamplerOptions, fallback: number, low: number, high: number, whole = false) => {
      const value = (options[name] as number | undefined) ?? fallback
      if (!(value >= low && value <= high) || (whole && !Number.isInteger(value))) {
        throw new OptionError(name, value, `${whole ? 'a whole number' : 'a number'} from ${low} to ${high}`)
      }
      return value
    }
    this.temperature = within('temperature', 1, 0, 100)
    this.scale = Math.min(1 / this.temperature, Number.MAX_VALUE) // infinitely many times no difference is no number
    this.topK = within('topK', 0, 0, 2 ** 31, true)
    this.topP = within('topP', 1, 0, 1)
    this.minP = within('minP', 0, 0, 1)
    within('repetitionPenalty', 1, Number.MIN_VALUE, 100)
    within('presencePenalty', 0, -100, 100)
    within('frequencyPenalty', 0, -100, 100)
    if (options.seed !== undefined && !Number.isFinite(options.seed)) {
      throw new OptionError('seed', options.seed, 'a finite number')
    }
    if (options.logitBias !== undefined && !(options.logitBias instanceof Map)) {
      throw new OptionError('logitBias', options.logitBias, 'a Map from token ids to numbers')
    }
    this.random = new Random(options.seed)
  }

  /** Tokens that the repetition penalty counts though the sampler did not choose them. */
  seePrompt(tokens: Iterable<number>): void {
    if ((this.options.repetitionPenalty ?? 1) === 1) return
    this.promptTokens = new Set([...this.promptTokens, ...tokens])
  }

  /** The best logit alone decides: nothing but the index of the highest one is needed. */
  get isArgmax(): boolean {
    return this.temperature === 0 && this.adjustsNothing
  }

  /** What is chosen from given logits is certain: the best one, or what the seed says. */
  get isDetermined(): boolean {
    return this.temperature === 0 || this.options.seed !== undefined
  }

  private get adjustsNothing(): boolean {
    return !this.countsTokens && (this.options.logitBias?.size ?? 0) === 0
  }

  private get countsTokens(): boolean {
    const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = this.options
    return repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0
  }

  /** Another one with the same options. */
  twin(): Sampler {
    return new Sampler(this.options)
  }

  /** Will choose as `twin` will, until one of them goes another way. */
  follow(twin: Sampler): void {
    this.random.follow(twin.random)
    if (!this.countsTokens) return
    this.promptTokens = twin.promptTokens
    this.answerCounts = new Map(twin.answerCounts)
  }

  /** What `sample` would draw from, in memory that the next call uses again. */
  weigh(logits: Float32Array, mask: Uint32Array | null = null): Candidates {
    return this.candidates(this.adjust(logits, mask))
  }

  /** Uniform in [0, 1). */
  chance(): number {
    return this.random.next()
  }

  /** A token was chosen, here or elsewhere: penalties count it. */
  took(token: number): void {
    this.answerCounts.set(token, (this.answerCounts.get(token) ?? 0) + 1)
  }

  /** `mask`: bit t % 32 of word t / 32 allows token t; null allows all. */
  sample(logits: Float32Array, mask: Uint32Array | null = null): number {
    const adjusted = this.adjust(logits, mask)
    const token = this.temperature === 0 ? argmax(adjusted) : this.drawFrom(adjusted)
    this.took(token)
    return token
  }

  /** Logits after biases, penalties and mask; as they are where there are none. NaN and -Infinity are never chosen. */
  private adjust(logits: Float32Array, mask: Uint32Array | null): Float32Array {
    if (this.scratch.length !== logits.length) {
      this.scratch = new Float32Array(logits.length)
      this.chosen = new Int32Array(logits.length)
      this.chosenWeights = new Float64Array(logits.length)
    }
    const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias } = this.options
    if (mask === null && this.adjustsNothing) return logits
    const adjusted = this.scratch
    adjusted.set(logits)
    const penalize = (token: number) => {
      if (token < adjusted.length) adjusted[token] *= adjusted[token] > 0 ? 1 / repetitionPenalty : repetitionPenalty
    }
    if (repetitionPenalty !== 1) {
      for (const token of this.promptTokens) penalize(token)
      for (const token of this.answerCounts.keys()) if (!this.promptTokens.has(token)) penalize(token)
    }
    if (presencePenalty !== 0 || frequencyPenalty !== 0) {
      for (const [token, count] of this.answerCounts) adjusted[token] -= presencePenalty + frequencyPenalty * count
    }
    if (logitBias) for (const [token, bias] of logitBias) if (token < adjusted.length) adjusted[token] += bias
    if (mask !== null) {
      for (let word = 0, first = 0; first < adjusted.length; word++, first += 32) {
        const bits = mask[word]
        const end = Math.min(first + 32, adjusted.length)
        if (bits === 0) adjusted.fill(-Infinity, first, end)
        else if (bits !== 0xffffffff) {
          for (let token = first; token < end; token++)
            if (((bits >>> (token & 31)) & 1) === 0) adjusted[token] = -Infinity
        }
      }
    }
    return adjusted
  }

  private drawFrom(logits: Float32Array): number {
    const { topK, topP, minP } = this
    if (topP === 1 && minP === 0 && (topK === 0 || topK >= logits.length)) {
      const best = logits[argmax(logits)]
      if (best < Infinity) return this.drawAny(logits, best)
    }
    return this.draw(this.candidates(logits))
  }

  private candidates(logits: Float32Array): Candidates {
    const { topK, topP, minP } = this
    if (topK > 0 && topK < logits.length) {
      const tokens = topK <= 1024 ? topTokens(logits, topK) : sorted(finiteTokens(logits), logits, topK)
      return this.cut(tokens, this.weights(tokens, logits))
    }
    const best = logits[argmax(logits)]
    const tokens = likelyTokens(logits, best, this.scale, topP, minP, this.chosen)
    return { tokens, weights: this.weights(tokens, logits, best) }
  }

  /** Any token may be drawn: no list of them is made. */
  private drawAny(logits: Float32Array, best: number): number {
    const { scale } = this
    const weights = this.chosenWeights
    let total = 0
    for (let token = 0; token < logits.length; token++) {
      const weight = decay((best - logits[token]) * scale)
      weights[token] = weight
      total += weight
    }
    let left = this.random.next() * total
    for (let token = 0; token < logits.length; token++) {
      left -= weights[token]
      if (left < 0) return token
    }
    return argmax(logits)
  }

  private weights(tokens: Int32Array, logits: Float32Array, best = logits[tokens[0]]): Float64Array {
    if (tokens.length === 0) throw nothingToChoose()
    const { scale } = this
    const weights = this.chosenWeights.subarray(0, tokens.length)
    for (let i = 0; i < tokens.length; i++) {
      const logit = logits[tokens[i]]
      weights[i] = logit === best ? 1 : decay((best - logit) * scale)
    }
    return weights
  }

  /** Top-p, then min-p, over candidates that come best first. */
  private cut(tokens: Int32Array, weights: Float64Array): Candidates {
    let count = tokens.length
    if (this.topP < 1) {
      const total = sum(weights)
      let covered = 0
      count = 0
      while (count < tokens.length && (count === 0 || covered < this.topP * total)) covered += weights[count++]
    }
    while (count > 1 && weights[count - 1] < this.minP) count--
    return { tokens: tokens.subarray(0, count), weights: weights.subarray(0, count) }
  }

  /** One of the candidates, by their weights. */
  draw({ tokens, weights }: Candidates): number {
    let left = this.random.next() * sum(weights)
    for (let i = 0; i < tokens.length; i++) {
      left -= weights[i]
      if (left < 0) return tokens[i]
    }
    return tokens[0]
  }
}

/** How likely the model itself held `token`, and its `count` favourites: before temperature, penalties and masks. */
export function tokenLogprobs(logits: Float32Array, token: number, count: number): SampledToken {
  const best = logits[argmax(logits)]
  const normalizer = best + Math.log(totalWeight(logits, best, 1))
  const logprob = (candidate: number) => logits[candidate] - normalizer
  const top = count > 0 ? Array.from(topTokens(logits, count), id => ({ token: id, logprob: logprob(id) })) : []
  return { token, logprob: logprob(token), top }
}

function totalWeight(logits: Float32Array, best: number, scale: number): number {
  if (best === Number.POSITIVE_INFINITY) return 1
  let total = 0
  for (let token = 0; token < logits.length; token++) total += decay((best - logits[token]) * scale)
  return total
}
