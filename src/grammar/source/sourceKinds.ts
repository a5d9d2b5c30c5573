// The kinds of things that a grammar is made of.
import type { AnswerLayout, CallForm } from '../../text/dialects/dialect.js'
import type { Marks } from './marks.js'
import type { ToolSchema } from './toolCallGrammar.js'

export type TextSource =
  | { readonly kind: 'json_object' } // any JSON object
  | { readonly kind: 'json_schema'; readonly schema: unknown }
  | { readonly kind: 'ebnf'; readonly text: string } // with a rule `root`

export interface CallSource {
  readonly kind: 'tool_call'
  readonly tools: readonly ToolSchema[]
  readonly form: CallForm
  readonly marks: Marks
}

export interface ChannelSource {
  readonly kind: 'channels'
  readonly layout: Extract<AnswerLayout, { readonly kind: 'channels' }>
  /** An answer of text; null: there must be a call. `grammar` null: any text. */
  readonly text: { readonly grammar: TextSource | null } | null
  readonly call: CallSource | null
  readonly marks: Marks
}

export type GrammarSource = TextSource | CallSource | ChannelSource
