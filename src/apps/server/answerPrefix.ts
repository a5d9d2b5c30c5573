// Options of an answer that several APIs derive from a request in the same way: a prefix that the
// client gives as a last message of the assistant, and how much thinking it asks for. Pure.
import type { ChatMessage, ChatOptions } from '../../index.js'

export type BegunAnswer = Pick<ChatOptions, 'messages' | 'prefill' | 'thinkingPrefill'>

/**
 * A last message of the assistant as a prefix of the answer: of its thinking, or of its text. Null
 * if the last message has another role, or calls of tools, whose results are to follow.
 */
export function begunAnswer(messages: readonly ChatMessage[]): BegunAnswer | null {
  const last = messages.at(-1)
  if (last?.role !== 'assistant' || last.tool_calls?.length) return null
  const { content, reasoning_content: thought } = last
  const text = typeof content === 'string' ? content : (content ?? []).map(part => part.text ?? '').join('')
  return { messages: messages.slice(0, -1), prefill: text, ...(thought && { thinkingPrefill: thought }) }
}

/** Thinking by the APIs' word for its amount; a word that no template has means thinking. */
export function thinkingByEffort(effort: string): ChatOptions['thinking'] {
  if (effort === 'none' || effort === 'minimal') return false
  return effort === 'low' || effort === 'medium' || effort === 'high' ? effort : true
}
