// A whole answer of its events, for clients that do not stream.
import type { EndReason, SessionEvent, TokenLogprobs, ToolCall, Usage } from '../../../index.js'

export interface CollectedAnswer {
  readonly text: string
  readonly thinking: string
  readonly toolCalls: readonly ToolCall[]
  readonly logprobs: readonly TokenLogprobs[]
  readonly finish: EndReason
  readonly usage: Usage
}

export async function collectAnswer(events: AsyncIterable<SessionEvent>): Promise<CollectedAnswer> {
  let text = ''
  let thinking = ''
  let usage: Usage | null = null
  let finish: EndReason = 'stop'
  const toolCalls: ToolCall[] = []
  const logprobs: TokenLogprobs[] = []
  for await (const event of events) {
    if (event.type === 'usage') usage = event
    else if (event.type === 'end') finish = event.reason
    else {
      logprobs.push(...(event.logprobs ?? []))
      if (event.type === 'text') text += event.text
      else if (event.type === 'thinking') thinking += event.text
      else if (event.type === 'toolCall') toolCalls.push(event)
    }
  }
  return { text, thinking, toolCalls, logprobs, finish, usage: usage as Usage }
}
