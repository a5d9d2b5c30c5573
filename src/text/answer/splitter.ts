// What it means to split an answer as it streams in: text goes in piece by piece, and thinking, text and tool calls come out
// as events that do not depend on how the text was cut. How an answer is written is a dialect's business: see dialects/.
import type { ToolCall } from './callReader.js'

export interface SplitterOptions {
  /** The prompt ended inside thinking. */
  readonly insideThinking?: boolean
  /** It ended in the middle of it: there is nothing to leave out at its beginning. */
  readonly thinkingBegun?: boolean
  /** The prompt ended with the beginning of the answer's text. */
  readonly insideText?: boolean
  /** Recognize thinking. Default true. */
  readonly thinking?: boolean
  /** Recognize tool calls. Default true. */
  readonly toolCalls?: boolean
  /**
   * Type of a tool's parameter by its schema ('string', 'integer', …), for calls that are not written in JSON. 'mixed': text,
   * or JSON where it is a JSON string or null.
   */
  readonly parameterType?: ParameterType
  readonly stop?: readonly string[]
  /** Tell of calls while they are being written. Default false: only of whole ones. */
  readonly callProgress?: boolean
}

export type ParameterType = (tool: string, parameter: string) => string | undefined

export type SplitEvent =
  | { readonly type: 'thinking'; readonly text: string }
  | { readonly type: 'text'; readonly text: string }
  | ({ readonly type: 'toolCall' } & ToolCall)
  | CallProgressEvent

/**
 * A call begins; its arguments grow by some text; what was told of it counts for nothing, because it was no call, was cut
 * off, or was another one. A call of which all was told is followed by its `toolCall`, whose arguments are the same text.
 */
export type CallProgressEvent =
  | { readonly type: 'toolCallStart'; readonly name: string }
  | { readonly type: 'toolCallDelta'; readonly arguments: string }
  | { readonly type: 'toolCallDropped' }

export interface AnswerSplitter {
  /** The stop sequence that was met; from then on all input is ignored. */
  readonly stopped: string | null
  /** Whether the answer is inside thinking now. */
  readonly inThinking: boolean
  push(text: string): SplitEvent[]
  /** A control token that is part of the dialect, by its text: what only spells one is pushed as text. */
  mark(token: string): SplitEvent[]
  /** The answer is over: what was held back comes out, but not the beginning of a call that a limit has cut off. */
  end(isCutOff?: boolean): SplitEvent[]
}
