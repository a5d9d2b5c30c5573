// What the calls of a context take and give.
import type { DraftRequest, StepRun } from '../backends/backend.js'

export interface ContextOptions {
  /** How many checkpoints are kept at most; 0 switches them off. Default 4. */
  readonly maxCheckpoints?: number
}

export interface EvalOptions {
  readonly signal?: AbortSignal
}

export interface TokenOptions extends EvalOptions {
  /** Memory [vocab] for the logits, used token after token: a large vocabulary's are a megabyte each time. */
  readonly into?: Float32Array
}

export interface GuessOptions extends EvalOptions {
  /** Default the best token each time. See `DraftRequest`. */
  readonly choose?: DraftRequest['choose']
}

export interface CheckOptions extends EvalOptions {
  /** 'argmax' moves no logits. */
  readonly output: 'all' | 'argmax'
  /** How many of the tokens stay: at least the first. Called once, when it is sure that they will. */
  readonly keep: NonNullable<StepRun['keep']>
}

export interface PromptOptions extends EvalOptions {
  /** Where the caller believes the context to be: anything but `length` is an error instead of a silent hole. */
  readonly start?: number
  /** Tokens of this call evaluated so far. */
  readonly onProgress?: (done: number, total: number) => void
}

export interface EvaluateOptions extends PromptOptions {
  /** Which logits come back: of the last token (the default), of every token, or none. */
  readonly logits?: 'last' | 'all' | 'none'
  /** Also return the experts that each token was routed to; 'weights': and what the router made each of them count for. */
  readonly routing?: boolean | 'weights'
  /** With logits 'all': called with each chunk's logits [tokens, vocab], which are then not kept. */
  readonly onLogits?: (start: number, logits: Float32Array) => void
  /** Called with each chunk's rows [tokens, hidden] after the final norm, which nobody else keeps. */
  readonly onHidden?: (start: number, rows: Float32Array) => void
}

export interface Evaluation {
  readonly logits: Float32Array | null // 'last': [vocab]; 'all': [tokens, vocab]
  readonly argmax: number | null // the best next id, unless logits are 'none'
  readonly routing: readonly RoutingChunk[] // in order; empty unless asked for
}

export interface RoutingChunk {
  readonly tokens: number
  readonly experts: Uint16Array // [layers, tokens, K], highest probability first
  readonly weights?: Float32Array // the same, where asked for
}
