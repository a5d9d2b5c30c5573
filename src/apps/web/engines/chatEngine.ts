// What the page needs of a model, wherever it runs: answers as events, and frames of the engine's life. Two places: a
// moeflux server, and this very tab.
import type { EngineFrame } from '#moeflux/apps/browser/page.js'
import type { AnswerUsage, Failure, FailureKind } from '../state/conversation.js'
import type { Settings } from '../state/settings.js'

export interface EngineShape {
  readonly model: string
  readonly backend: string
  readonly description: string
  readonly isLoaded: boolean // else it is loaded when it is asked, and the rest is not known yet
  readonly layers: number // with experts
  readonly experts: number
  readonly expertsPerToken: number
  readonly layerNumbers: readonly number[] // [layers], the model's own: dense ones have no row
  readonly layerKinds: readonly string[] // [layers]
  readonly contextLength: number
}

export interface ChatRequest {
  readonly messages: readonly { readonly role: 'system' | 'user' | 'assistant'; readonly content: string }[]
  readonly settings: Settings
  /** What there is of the answer already: the events go on from there, without more thinking. Empty: nothing. */
  readonly begun: string
  /** What there is of its thinking: where there is no text yet, the events go on with that. */
  readonly begunThinking: string
}

export type ChatEvent =
  /** Before the first token: the model is loaded (hundredths), or the prompt read (tokens). */
  | {
      readonly type: 'progress'
      readonly kind: 'loading' | 'prompt'
      readonly done: number
      readonly total: number
      readonly cached: number
    }
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'thinking'; readonly text: string }
  | { readonly type: 'usage'; readonly usage: AnswerUsage }
  | { readonly type: 'end'; readonly reason: 'stop' | 'length' }

export interface ChatEngine {
  readonly place: 'server' | 'tab'
  readonly shape: EngineShape
  chat(request: ChatRequest, signal: AbortSignal): AsyncIterable<ChatEvent>
  /** Frames until the returned function is called; `onState` tells whether they come. */
  watch(onFrame: (frame: EngineFrame) => void, onState: (isLive: boolean) => void): () => void
}

/** Why an answer, or the way to one, failed: in words, and in a kind that says what may help. */
export class EngineFailure extends Error implements Failure {
  constructor(
    readonly kind: FailureKind,
    message: string,
  ) {
    super(message)
  }
}
