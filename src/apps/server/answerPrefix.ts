// A last message of the assistant's as the beginning of the answer: of its thinking, or of its text, when the thinking is over.
import type { ChatMessage, ChatOptions } from '../../index.js'

export type BegunAnswer = Pick<ChatOptions, 'messages' | 'prefill' | 'thinkingPrefill'>

/** Null where the last message is somebody else's, or has calls of tools, whose results are to come. */
export function begunAnswer(messages: readonly ChatMessage[]): BegunAnswer | null {
  const last = messages.at(-1)
  if (last?.role !== 'assistant' || last.tool_calls?.length) return null
  const { content, reasoning_content: thought } = last
  const text = typeof content === 'string' ? content : (content ?? []).map(part => part.text ?? '').join('')
  return { messages: messages.slice(0, -1), prefill: text, ...(thought && { thinkingPrefill: thought }) }
}

// How much thinking a client asks for by a word, as the APIs spell it.

/** Words that no template knows mean thinking, whichever they are; those for none switch it off. */
export function thinkingByEffort(effort: string): ChatOptions['thinking'] {
  if (effort === 'none' || effort === 'minimal') return false
  return effort === 'low' || effort === 'medium' || effort === 'high' ? effort : true
}
