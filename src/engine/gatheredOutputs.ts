// What the steps of one evaluation give, gathered as they are committed.
import type { StepOutput, StepRun } from '../backends/backend.js'
import { joinFloats } from '../model/floats.js'
import type { EvaluateOptions, Evaluation, RoutingChunk, TokenOptions } from './contextOptions.js'

export class GatheredOutputs {
  done = 0 // tokens
  private readonly chunks: Float32Array[] = []
  private readonly picks: RoutingChunk[] = []
  private last: { logits: Float32Array | null; argmax: number | null } = { logits: null, argmax: null }

  constructor(
    private readonly output: StepRun['output'],
    private readonly options: EvaluateOptions & TokenOptions,
    private readonly total: number, // tokens
  ) {}

  /** So many tokens more are committed; the context has `length` with them. */
  add(tokens: number, result: StepOutput, length: number): void {
    const { routing, onProgress, onLogits, onHidden } = this.options
    this.done += tokens
    this.last = result
    if (routing && result.routing) this.picks.push(routingChunk(tokens, result, routing === 'weights'))
    if (result.hidden) onHidden?.(length - tokens, result.hidden)
    if (this.output === 'all' && result.logits) {
      if (onLogits) onLogits(length - tokens, result.logits)
      else this.chunks.push(result.logits)
    }
    onProgress?.(this.done, this.total)
  }

  finish(): Evaluation {
    const { into, onLogits } = this.options
    const logits = this.output === 'all' ? (onLogits ? null : joinFloats(this.chunks)) : this.last.logits
    if (into && logits && logits !== into) into.set(logits)
    return { logits: into ?? logits, argmax: this.last.argmax, routing: this.picks }
  }
}

function routingChunk(tokens: number, { routing, routerWeights }: StepOutput, withWeights: boolean): RoutingChunk {
  const experts = routing as Uint16Array
  return withWeights ? { tokens, experts, weights: routerWeights as Float32Array } : { tokens, experts }
}
