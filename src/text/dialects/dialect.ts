// How a model writes its answers: what stands around thinking and tool calls, how a call is written, which tokens are part of
// that. A dialect is one file of this folder, and mostly data; streaming (tagSplitter.ts, channelSplitter.ts) and grammars
// (src/grammar) follow from it. How messages become a prompt is the business of the model's chat template, and a dialect
// only knows where its templates want them otherwise.
import type { DialectName } from '../../model/families/family.js'
import type { AnswerSplitter, SplitterOptions } from '../answer/splitter.js'
import type { ChatRequest } from '../template/chatRenderer.js'

export interface Dialect {
  readonly name: DialectName
  /** Whether a chat template asks for answers in this dialect. */
  readonly isSpokenBy: (chatTemplate: string) => boolean
  /** Null: the model does not think. */
  readonly thinking: Around | null
  /** How an answer is laid out, for grammars. */
  readonly layout: AnswerLayout
  readonly call: CallForm
  /** Tokens that are part of the syntax. Where a tokenizer has one as a control token, it is still looked at. */
  readonly marks: readonly string[]
  /** Tokens that end an answer, beside those that the model's configuration names. */
  readonly endTokens: readonly string[]
  /** Templates take back a call as the text that the model wrote for it. */
  readonly takesWrittenCalls: boolean
  createSplitter(options?: SplitterOptions): AnswerSplitter
  /** A chat as the dialect's templates want it. */
  readonly prepare?: (chat: ChatRequest) => PreparedChat
}

export interface Around {
  readonly open: string
  readonly close: string
}

/**
 * `tags`: thinking, text and calls follow each other, and each call stands between two tokens. `channels`: an answer is
 * thinking, as often as the model likes, and then one message, which is text or a call; `text` opens one of text. `afterThinking`
 * stands between a thought and the text after it.
 */
export type AnswerLayout =
  | { readonly kind: 'tags'; readonly call: Around; readonly afterThinking: string }
  | { readonly kind: 'channels'; readonly thinking: Around; readonly text: string }

/** The texts around a call's name and arguments, from the end of what opens it to the beginning of what closes it. */
export interface CallForm {
  readonly open: string
  readonly name: 'bare' | 'quoted' // quoted: as in a JSON string
  readonly afterName: string
  /** One JSON object, or one parameter after the other: strings as they are, the rest as JSON. */
  readonly arguments: 'json' | { readonly open: string; readonly afterKey: string; readonly close: string }
  readonly close: string
}

export interface PreparedChat {
  readonly chat: ChatRequest
  /** Where each message of the original is now. */
  readonly places: readonly number[]
}
