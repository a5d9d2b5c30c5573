// Chat messages as callers give them (the shape that the OpenAI API made common, with text parts of both APIs), and
// their plain form that templates understand. Refuses what cannot be put into a prompt; knows nothing of templates.
import { MessageError } from '../../base/errors.js'

export type Role = 'system' | 'developer' | 'user' | 'assistant' | 'tool' | 'function'

export interface ContentPart {
  readonly type: string // 'text', 'input_text' or 'output_text'; anything else is refused
  readonly text?: string
  readonly cache_control?: unknown
}

export interface ToolCallMessage {
  readonly id?: string
  readonly type?: string
  readonly function?: { readonly name: string; readonly arguments?: unknown }
  readonly name?: string
  readonly arguments?: unknown // an object, or its JSON text
}

export interface ChatMessage {
  readonly role: Role | (string & {})
  readonly content?: string | null | readonly ContentPart[]
  readonly reasoning_content?: string | null
  readonly tool_calls?: readonly ToolCallMessage[] | null
  /** The same, as an answer of this library names them. */
  readonly toolCalls?: readonly ToolCallMessage[] | null
  readonly tool_call_id?: string
  readonly name?: string
  /** Any value but null asks for a cache breakpoint after this message. */
  readonly cache_control?: unknown
}

/** A tool that a model may call. Fields beside these go to the chat template as they are. */
export interface FunctionDefinition {
  readonly name: string
  readonly description?: string | null
  /** JSON schema of an object. */
  readonly parameters?: Readonly<Record<string, unknown>> | null
  /** Calls of it are guaranteed to fit the schema. */
  readonly strict?: boolean | null
}

/** As the OpenAI API has it, or the inner object alone. */
export type ToolDefinition =
  | FunctionDefinition
  | { readonly type?: string; readonly function: FunctionDefinition; readonly cache_control?: unknown }

/** What a template sees of it. */
export interface PlainTool {
  readonly type: 'function'
  readonly function: FunctionDefinition
}

export interface PlainToolCall {
  readonly id?: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: unknown }
}

/** What a template sees. */
export interface PlainMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  readonly reasoning_content?: string
  readonly thinking?: string // the same, for templates that call it so
  readonly tool_calls?: readonly PlainToolCall[]
  readonly tool_call_id?: string
  readonly name?: string
}

export interface PlainMessages {
  readonly messages: readonly PlainMessage[]
  /** Where cache_control asks for breakpoints: after so many characters of a message's content. */
  readonly breakpoints: readonly { readonly message: number; readonly characters: number }[]
}

const ROLES = new Map<string, PlainMessage['role']>([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
  ['tool', 'tool'],
  ['function', 'tool'],
])
const TEXT_PARTS = new Set(['text', 'input_text', 'output_text'])

export function plainMessages(messages: readonly ChatMessage[]): PlainMessages {
  if (!Array.isArray(messages) || messages.length === 0) throw new MessageError('messages', 'want at least one')
  const plain: PlainMessage[] = []
  const breakpoints: { message: number; characters: number }[] = []
  messages.forEach((message: ChatMessage, index) => {
    const path = `messages[${index}]`
    if (message === null || typeof message !== 'object') throw new MessageError(path, 'want an object')
    const role = ROLES.get(message.role)
    if (role === undefined) {
      throw new MessageError(
        `${path}.role`,
        `got ${JSON.stringify(message.role)}, want one of ${[...ROLES.keys()].join(', ')}`,
      )
    }
    const { text, marks } = plainContent(message, path, role === 'system' ? dropVolatileLines : wellFormed)
    const previous = plain.at(-1)
    // Templates of this family take one system message, at the start; clients send several.
    const merged = role === 'system' && plain.length === 1 && previous?.role === 'system'
    const before = merged && previous.content.length > 0 ? `${previous.content}\n\n` : ''
    if (merged) plain[0] = { ...previous, content: before + text }
    else plain.push({ ...plainMessage(message, role, path), content: text })
    for (const mark of marks) breakpoints.push({ message: plain.length - 1, characters: before.length + mark })
  })
  return { messages: plain, breakpoints }
}

/** Tools in the shape that templates print, each checked for a name. */
export function plainTools(tools: readonly ToolDefinition[] | null | undefined): PlainTool[] {
  return (tools ?? []).map((tool, index) => {
    const path = `tools[${index}]`
    if (tool === null || typeof tool !== 'object') throw new MessageError(path, 'want an object')
    const inner = 'function' in tool ? tool.function : tool
    const { cache_control: _, ...rest } = (inner ?? {}) as FunctionDefinition & { cache_control?: unknown }
    if (typeof rest.name !== 'string' || rest.name === '') throw new MessageError(`${path}.name`, 'want a name')
    return { type: 'function', function: rest }
  })
}

function plainMessage(message: ChatMessage, role: PlainMessage['role'], path: string): Omit<PlainMessage, 'content'> {
  const calls = message.tool_calls ?? message.toolCalls ?? []
  if (!Array.isArray(calls)) throw new MessageError(`${path}.tool_calls`, 'want a list')
  return {
    role,
    ...(typeof message.reasoning_content === 'string' && { reasoning_content: wellFormed(message.reasoning_content) }),
    ...(calls.length > 0 && { tool_calls: calls.map((call, i) => plainCall(call, `${path}.tool_calls[${i}]`)) }),
    ...(typeof message.tool_call_id === 'string' && { tool_call_id: message.tool_call_id }),
    ...(typeof message.name === 'string' && { name: message.name }),
  }
}

function plainCall(call: ToolCallMessage, path: string): PlainToolCall {
  const inner = call?.function ?? call
  if (typeof inner?.name !== 'string') throw new MessageError(`${path}.name`, 'want a name')
  return {
    ...(typeof call.id === 'string' && { id: call.id }),
    type: 'function',
    function: { name: inner.name, arguments: parsedArguments(inner.arguments) },
  }
}

/** Templates either print the arguments or go through them, so JSON text of an object becomes that object. */
function parsedArguments(value: unknown): unknown {
  if (value === undefined || value === null || value === '') return {}
  if (typeof value !== 'string') return value
  try {
    const parsed: unknown = JSON.parse(value)
    return parsed !== null && typeof parsed === 'object' && !Array.isArray(parsed) ? parsed : value
  } catch {
    return value
  }
}

function plainContent(
  message: ChatMessage,
  path: string,
  clean: (text: string) => string,
): { text: string; marks: number[] } {
  const { content } = message
  const marks: number[] = []
  let text = ''
  if (typeof content === 'string') text = clean(content)
  else if (Array.isArray(content)) {
    content.forEach((part: ContentPart | string, index) => {
      const value = typeof part === 'string' ? part : part?.text
      if (typeof part !== 'string' && !TEXT_PARTS.has(part?.type)) {
        throw new MessageError(
          `${path}.content[${index}]`,
          `a part of type ${JSON.stringify(part?.type)} is not supported: this model reads text alone`,
        )
      }
      if (typeof value !== 'string') throw new MessageError(`${path}.content[${index}].text`, 'want text')
      text += clean(value)
      if (typeof part !== 'string' && part.cache_control != null) marks.push(text.length)
    })
  } else if (content !== null && content !== undefined) {
    throw new MessageError(`${path}.content`, `got ${typeof content}, want text, a list of parts, or null`)
  }
  if (message.cache_control != null) marks.push(text.length)
  return { text, marks }
}

/** Some clients put a line into the system prompt that differs in every request, so that no prefix ever repeats. */
function dropVolatileLines(text: string): string {
  const clean = wellFormed(text)
  if (!clean.includes('x-anthropic-billing-header:')) return clean
  return clean.replace(/^x-anthropic-billing-header:.*(?:\r?\n|$)/gm, '')
}

/** A lone surrogate has no UTF-8 form: it becomes U+FFFD here, once, and not differently in each later step. */
export function wellFormed(text: string): string {
  return (text as string & { toWellFormed(): string }).toWellFormed() // of ES2024: Node 20 and browsers have it
}
