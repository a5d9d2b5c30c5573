// A chat as gpt-oss' templates want it. They know one system message, thinking by another name, one call in a message, and
// results of the call before; they fail on what has no description, and drop what they do not know without a word.
import type { ChatRequest } from '../template/chatRenderer.js'
import type { PlainMessage, PlainTool } from '../template/messages.js'
import type { PreparedChat } from './dialect.js'

type Numbered = PlainMessage & { readonly from: number }

export function prepareHarmonyChat(chat: ChatRequest): PreparedChat {
  const numbered = chat.messages.map((message, from) => ({ ...message, from }))
  const messages = oneCallEach(numbered)
  const places = numbered.map(({ from }) => messages.findLastIndex(message => message.from === from))
  const { thinking = false } = chat
  const effort = typeof thinking === 'string' ? thinking : thinking ? 'medium' : 'low' // there is no way to ask for none
  return {
    chat: {
      ...chat,
      messages: messages.map(({ from, ...message }) => harmonyMessage(message, from)),
      tools: chat.tools?.map(described),
      variables: { reasoning_effort: effort, ...chat.variables },
    },
    places,
  }
}

function harmonyMessage(message: PlainMessage, index: number): PlainMessage {
  if (message.role === 'system' && index > 0) return { ...message, role: 'user' }
  const { reasoning_content: thinking = '', ...rest } = message
  if (message.role !== 'assistant' || thinking === '') return rest
  // Beside a call the template takes either of the two.
  if (!message.tool_calls || message.content === '') return { ...rest, thinking }
  return { ...rest, content: '', thinking: `${thinking}\n\n${message.content}` }
}

/** Several calls in a message become several messages, each with its result after it. */
function oneCallEach(messages: readonly Numbered[]): Numbered[] {
  const out: Numbered[] = []
  for (let i = 0; i < messages.length; i++) {
    const message = messages[i]
    const calls = message.tool_calls ?? []
    if (calls.length < 2) {
      out.push(message)
      continue
    }
    const results: Numbered[] = []
    while (messages[i + 1]?.role === 'tool') results.push(messages[++i])
    calls.forEach((call, index) => {
      const words = index === 0 ? message : { role: message.role, content: '', from: message.from }
      out.push({ ...words, tool_calls: [call] })
      const own = results.findIndex(({ tool_call_id: id }) => id !== undefined && id === call.id)
      const result = own >= 0 ? own : results.findIndex(({ tool_call_id: id }) => !calls.some(other => other.id === id))
      if (result >= 0) out.push(...results.splice(result, 1))
    })
    out.push(...results)
  }
  return out
}

/** Without a description the template would print that there is none, or end. */
function described(tool: PlainTool): PlainTool {
  const { description, parameters, ...rest } = tool.function
  const { properties, ...others } = (parameters ?? {}) as { properties?: Record<string, unknown> }
  const named = Object.entries(properties ?? {}).map(([name, schema]) => [
    name,
    schema !== null && typeof schema === 'object' ? { description: '', ...schema } : { description: '' },
  ])
  return {
    ...tool,
    function: {
      ...rest,
      description: description ?? '',
      ...(parameters != null && {
        parameters: { ...others, ...(properties && { properties: Object.fromEntries(named) }) },
      }),
    },
  }
}
