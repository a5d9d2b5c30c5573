// Requests of the OpenAI Responses API, and what they say as messages of a session.
import { z } from 'zod'
import type { ChatMessage, ResponseFormat, ToolChoice, ToolDefinition } from '../../../index.js'
import { ApiError } from '../apiError.js'
import { hostedNotice, isHosted } from '../hostedTools.js'
import { toolName } from './chatSchema.js'
import { CUSTOM_PARAMETERS } from './customInput.js'

const text = z.string().max(32 * 2 ** 20)
const part = z.looseObject({ type: z.string(), text: text.optional() })

const item = z.looseObject({
  type: z.string().optional(), // absent: a message
  role: z.string().optional(),
  content: z.union([text, z.array(part).max(4096)]).nullish(),
  summary: z.array(part).nullish(),
  id: z.string().nullish(),
  call_id: z.string().optional(),
  name: z.string().optional(),
  arguments: z.string().optional(),
  input: text.optional(),
  output: z.union([text, z.array(part).max(4096)]).optional(),
})
export type InputItem = z.infer<typeof item>

const format = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('text') }),
    z.object({ type: z.literal('json_object') }),
    z.object({
      type: z.literal('json_schema'),
      name: z.string().optional(),
      schema: z.unknown(),
      strict: z.boolean().nullish(),
    }),
  ])
  .nullish()

export const responsesRequest = z.object({
  model: z.string().max(1024).optional(), // comes back with each part of an answer
  prompt: z.null({ error: 'stored prompts are not supported' }).optional(), // first: beside it, input may be missing
  input: z.union([text, z.array(item).max(10_000)]),
  instructions: text.nullish(),
  previous_response_id: z.string().max(1024).nullish(),
  conversation: z.null({ error: 'not supported, use previous_response_id' }).optional(),
  store: z.boolean().nullish(),
  stream: z.boolean().nullish(),
  max_output_tokens: z.number().int().min(1).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_logprobs: z.number().int().min(0).max(20).nullish(),
  text: z.looseObject({ format }).nullish(),
  tools: z
    .array(
      z.looseObject({
        type: z.string(),
        name: toolName.optional(),
        description: text.nullish(),
        parameters: z.record(z.string(), z.unknown()).nullish(),
        strict: z.boolean().nullish(),
        format: z
          .looseObject({ type: z.string(), syntax: z.string().max(64).optional(), definition: text.optional() })
          .nullish(), // of custom ones
      }),
    )
    .max(256)
    .nullish(),
  tool_choice: z
    .union([
      z.enum(['none', 'auto', 'required']),
      z.object({ type: z.string().max(64), name: z.string().max(128).optional() }),
    ])
    .nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  reasoning: z.looseObject({ effort: z.string().max(64).nullish() }).nullish(),
  metadata: z
    .record(z.string().max(64), z.string().max(512))
    .refine(pairs => Object.keys(pairs).length <= 16, 'want at most 16 pairs')
    .nullish(), // as the API has it: it comes back with each answer
  background: z.literal(false, { error: 'background responses are not supported' }).nullish(),
  truncation: z.enum(['auto', 'disabled']).nullish(), // what does not fit is refused either way
})
export type ResponsesRequest = z.infer<typeof responsesRequest>
type Tool = NonNullable<ResponsesRequest['tools']>[number]

/** Items as messages. Calls and reasoning join the assistant's message that they belong to. */
export function inputMessages(items: readonly InputItem[]): ChatMessage[] {
  const messages: ChatMessage[] = []
  let reasoning = ''
  const assistant = (): ChatMessage & { tool_calls: unknown[] } => {
    const last = messages.at(-1)
    if (last?.role === 'assistant') {
      const open = { ...last, tool_calls: [...(last.tool_calls ?? [])] }
      messages[messages.length - 1] = open
      return open
    }
    const fresh = { role: 'assistant', content: null, tool_calls: [], ...takeReasoning() }
    messages.push(fresh)
    return fresh
  }
  const takeReasoning = () => {
    const taken = reasoning
    reasoning = ''
    return taken === '' ? {} : { reasoning_content: taken }
  }
  items.forEach((entry, index) => {
    const where = `input.${index}`
    switch (entry.type ?? 'message') {
      case 'message':
        if (entry.role === undefined) throw new ApiError('invalid_request', `${where}.role: want a role`)
        messages.push({
          role: entry.role,
          content: entry.content ?? '',
          ...(entry.role === 'assistant' && takeReasoning()),
        })
        break
      case 'reasoning': {
        const parts = Array.isArray(entry.content) && entry.content.length > 0 ? entry.content : (entry.summary ?? [])
        reasoning += parts.map(piece => piece.text ?? '').join('')
        break
      }
      case 'function_call':
        assistant().tool_calls.push({
          id: entry.call_id,
          type: 'function',
          function: { name: entry.name ?? '', arguments: entry.arguments ?? '{}' },
        })
        break
      case 'custom_tool_call':
        assistant().tool_calls.push({
          id: entry.call_id,
          type: 'function',
          function: { name: entry.name ?? '', arguments: { input: entry.input ?? '' } },
        })
        break
      case 'custom_tool_call_output':
      case 'function_call_output':
        messages.push({ role: 'tool', tool_call_id: entry.call_id, content: entry.output ?? '' })
        break
      default:
        throw new ApiError('invalid_request', `${where}: items of type '${entry.type}' are not supported`, {
          param: where,
        })
    }
  })
  return messages
}

export function toolDefinitions(
  tools: ResponsesRequest['tools'],
  onNotice: (line: string) => void,
): ToolDefinition[] | undefined {
  const own = tools?.filter(tool => {
    if (isHosted(tool.type)) onNotice(hostedNotice(tool.type))
    return !isHosted(tool.type)
  })
  return own?.map((tool, index) => {
    if ((tool.type !== 'function' && tool.type !== 'custom') || tool.name === undefined) {
      const detail = `only tools of type function and custom are supported, got '${tool.type}'`
      throw new ApiError('invalid_request', `tools.${index}: ${detail}`, { param: `tools.${index}` })
    }
    const isCustom = tool.type === 'custom'
    const { name, strict } = tool
    const description = isCustom ? customDescription(tool) : tool.description
    const parameters = isCustom ? CUSTOM_PARAMETERS : tool.parameters
    return {
      type: 'function',
      function: {
        name,
        ...(description != null && { description }),
        ...(parameters != null && { parameters }),
        ...(strict === true && { strict }),
      },
    }
  })
}

/** A grammar for the input is told to the model, and not enforced. */
function customDescription({ description, format }: Tool): string {
  const grammar =
    format?.type === 'grammar' ? `\nThe input follows this ${format.syntax} grammar:\n${format.definition}` : ''
  return `${description ?? ''}${grammar}`.trim()
}

export function responsesToolChoice(choice: ResponsesRequest['tool_choice']): ToolChoice | undefined {
  if (!choice) return undefined
  if (typeof choice === 'string') return choice
  if ((choice.type !== 'function' && choice.type !== 'custom') || choice.name === undefined) {
    throw new ApiError('invalid_request', `tool_choice: type '${choice.type}' is not supported`, {
      param: 'tool_choice',
    })
  }
  return { name: choice.name }
}

export function responsesFormat(request: ResponsesRequest): ResponseFormat | undefined {
  const wanted = request.text?.format
  if (!wanted) return undefined
  return wanted.type === 'json_schema' ? { type: 'json_schema', schema: wanted.schema ?? {} } : wanted
}
