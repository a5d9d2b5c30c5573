// From the messages of an Anthropic request to those of a session: system text, content blocks, tool uses and their
// results, thinking, and cache_control marks.
import type {
  ChatMessage,
  ChatOptions,
  ContentPart,
  ToolCallMessage,
  ToolChoice,
  ToolDefinition,
} from '../../../index.js'
import { withoutImages } from '../absentImages.js'
import { begunAnswer } from '../answerPrefix.js'
import { ApiError } from '../apiError.js'
import { hostedNotice, isHosted, knownTool } from '../hostedTools.js'
import type { ServerContext } from '../serverContext.js'
import type { ContentBlock, CountRequest } from './schemas.js'

/** Of the server, what a prompt needs. */
type PromptHost = Pick<ServerContext, 'onNotice' | 'images'>

type Message = CountRequest['messages'][number]

export type PromptOptions = Pick<
  ChatOptions,
  'messages' | 'tools' | 'toolChoice' | 'parallelToolCalls' | 'thinking' | 'prefill' | 'thinkingPrefill'
>

export function promptOptions(request: CountRequest, { onNotice, images }: PromptHost): PromptOptions {
  const choice = request.tool_choice
  const messages = chatMessages({ ...request, messages: withoutImages(request.messages, images) })
  const begun = begunAnswer(messages)
  if (begun === null && messages.at(-1)?.role === 'assistant')
    throw new ApiError('invalid_request', 'messages: tool_use ids were found without tool_result')
  return {
    ...(begun ?? { messages }),
    tools: request.tools?.flatMap((tool, index) => toolDefinition(tool, index, onNotice)),
    toolChoice: toolChoice(choice),
    parallelToolCalls: choice && choice.type !== 'none' && choice.disable_parallel_tool_use ? false : undefined,
    thinking: request.thinking ? request.thinking.type !== 'disabled' : undefined,
  }
}

/** Whether the request marks anything for caching; only then are tokens reported as written to the cache. */
export function asksForCaching(request: CountRequest): boolean {
  const marked = (value: unknown): boolean =>
    Array.isArray(value) && value.some(item => (item as ContentBlock)?.cache_control != null)
  return marked(request.system) || marked(request.tools) || request.messages.some(message => marked(message.content))
}

function chatMessages(request: Pick<CountRequest, 'system'> & { messages: readonly Message[] }): ChatMessage[] {
  const messages: ChatMessage[] = []
  if (request.system != null) messages.push({ role: 'system', content: request.system })
  request.messages.forEach((message, index) => {
    const path = `messages.${index}`
    if (typeof message.content === 'string') messages.push({ role: message.role, content: message.content })
    else if (message.role === 'assistant') messages.push(assistantMessage(message.content, path))
    else messages.push(...userMessages(message.role, message.content, path))
  })
  return messages
}

/** Parts of answers by other models: thinking that only they can read, and tools that their servers ran. */
const LEFT_OUT = /^(redacted_thinking|server_tool_use|\w+_tool_result)$/

function assistantMessage(blocks: readonly ContentBlock[], path: string): ChatMessage {
  const parts: ContentPart[] = []
  const calls: ToolCallMessage[] = []
  let thinking = ''
  blocks.forEach((block, index) => {
    if (block.type === 'text') parts.push(textPart(block, `${path}.content.${index}`))
    else if (block.type === 'thinking') thinking += block.thinking ?? ''
    else if (block.type === 'tool_use') {
      calls.push({ id: block.id, type: 'function', function: { name: block.name ?? '', arguments: block.input ?? {} } })
    } else if (!LEFT_OUT.test(block.type)) throw unsupported(block, `${path}.content.${index}`)
  })
  const cached = blocks.some(block => block.type !== 'text' && block.cache_control != null)
  return {
    role: 'assistant',
    content: parts.length > 0 ? parts : null,
    ...(thinking !== '' && { reasoning_content: thinking }),
    ...(calls.length > 0 && { tool_calls: calls }),
    ...(cached && { cache_control: { type: 'ephemeral' } }),
  }
}

/** Tool results become messages of their own, in order; text between them stays a user's message. */
function userMessages(role: string, blocks: readonly ContentBlock[], path: string): ChatMessage[] {
  const messages: ChatMessage[] = []
  let parts: ContentPart[] = []
  const flush = () => {
    if (parts.length > 0) messages.push({ role, content: parts })
    parts = []
  }
  blocks.forEach((block, index) => {
    const where = `${path}.content.${index}`
    if (block.type === 'text') parts.push(textPart(block, where))
    else if (block.type === 'tool_result') {
      flush()
      messages.push({
        role: 'tool',
        tool_call_id: block.tool_use_id,
        content: resultText(block, where),
        ...(block.cache_control != null && { cache_control: block.cache_control }),
      })
    } else if (block.type === 'document' && typeof documentText(block) === 'string') {
      parts.push({ type: 'text', text: documentText(block) as string, cache_control: block.cache_control ?? undefined })
    } else throw unsupported(block, where)
  })
  flush()
  return messages
}

function textPart(block: ContentBlock, path: string): ContentPart {
  if (block.text === undefined) throw new ApiError('invalid_request', `${path}.text: want text`)
  return { type: 'text', text: block.text, ...(block.cache_control != null && { cache_control: block.cache_control }) }
}

function resultText(block: ContentBlock, path: string): string {
  const { content } = block
  if (content === undefined || content === null) return ''
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw new ApiError('invalid_request', `${path}.content: want text or a list of blocks`)
  return content
    .map((part: ContentBlock, i) => {
      if (part?.type !== 'text' || typeof part.text !== 'string') throw unsupported(part, `${path}.content.${i}`)
      return part.text
    })
    .join('\n')
}

/** A document given as plain text is text. */
function documentText(block: ContentBlock): unknown {
  const source = (block as { source?: { type?: unknown; data?: unknown } }).source
  return source?.type === 'text' ? source.data : undefined
}

function unsupported(block: ContentBlock, path: string): ApiError {
  return new ApiError(
    'invalid_request',
    `${path}: a block of type ${JSON.stringify(block?.type)} is not supported: this model reads text alone`,
  )
}

function toolDefinition(
  tool: NonNullable<CountRequest['tools']>[number],
  index: number,
  onNotice: PromptHost['onNotice'],
): ToolDefinition[] {
  const type = tool.type ?? 'custom'
  if (isHosted(type)) {
    onNotice(hostedNotice(type))
    return []
  }
  const known = type === 'custom' ? null : knownTool(type)
  const refuse = (detail: string) => new ApiError('invalid_request', `tools.${index}${detail}`, { param: 'tools' })
  if (type !== 'custom' && known === null) throw refuse(`: there are no tools of type '${type}' here`)
  const name = tool.name ?? known?.name
  if (name === undefined) throw refuse('.name: want a name')
  const description = tool.description ?? known?.description
  const definition = {
    name,
    ...(description !== undefined && { description }),
    parameters: tool.input_schema ?? known?.parameters ?? { type: 'object', properties: {} },
    ...(tool.strict === true && { strict: true }),
  }
  return [{ type: 'function', function: definition }]
}

function toolChoice(choice: CountRequest['tool_choice']): ToolChoice | undefined {
  if (!choice) return undefined
  if (choice.type === 'tool') return { name: choice.name }
  return choice.type === 'any' ? 'required' : choice.type
}
