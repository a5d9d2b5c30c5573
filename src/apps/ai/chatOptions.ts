// From a call of the AI SDK to the options of a session: messages, tools, formats and sampling.
import type {
  LanguageModelV3CallOptions,
  LanguageModelV3FunctionTool,
  LanguageModelV3Message,
  LanguageModelV3ToolResultPart,
  SharedV3Warning,
} from '@ai-sdk/provider'
import { OptionError } from '../../base/errors.js'
import type { ChatMessage, ChatOptions, ContentPart, ResponseFormat, ToolChoice, ToolDefinition } from '../../index.js'

/** `providerOptions.moeflux` of a call. */
export interface MoefluxCallOptions {
  readonly thinking?: boolean
  readonly thinkingBudget?: number
  readonly minP?: number
  readonly repetitionPenalty?: number
  readonly parallelToolCalls?: boolean
}

export function chatOptions(call: LanguageModelV3CallOptions): { options: ChatOptions; warnings: SharedV3Warning[] } {
  const own = (call.providerOptions?.moeflux ?? {}) as MoefluxCallOptions
  const warnings: SharedV3Warning[] = []
  const tools: ToolDefinition[] = []
  for (const tool of call.tools ?? []) {
    if (tool.type === 'function') tools.push(toolDefinition(tool))
    else
      warnings.push({ type: 'unsupported', feature: `tool ${tool.name}`, details: 'only function tools are supported' })
  }
  const options: ChatOptions = {
    messages: call.prompt.flatMap(chatMessages),
    tools: tools.length > 0 ? tools : undefined,
    toolChoice: toolChoice(call.toolChoice),
    parallelToolCalls: own.parallelToolCalls,
    responseFormat: responseFormat(call.responseFormat),
    maxTokens: call.maxOutputTokens,
    temperature: call.temperature,
    topP: call.topP,
    topK: call.topK,
    minP: own.minP,
    presencePenalty: call.presencePenalty,
    frequencyPenalty: call.frequencyPenalty,
    repetitionPenalty: own.repetitionPenalty,
    stop: call.stopSequences,
    seed: call.seed,
    thinking: own.thinking,
    thinkingBudget: own.thinkingBudget,
    signal: call.abortSignal,
  }
  return { options, warnings }
}

function toolDefinition({ name, description, inputSchema, strict }: LanguageModelV3FunctionTool): ToolDefinition {
  return { name, ...(description !== undefined && { description }), parameters: inputSchema, ...(strict && { strict }) }
}

function toolChoice(choice: LanguageModelV3CallOptions['toolChoice']): ToolChoice | undefined {
  if (choice === undefined) return undefined
  return choice.type === 'tool' ? { name: choice.toolName } : choice.type
}

function responseFormat(format: LanguageModelV3CallOptions['responseFormat']): ResponseFormat | undefined {
  if (format?.type !== 'json') return undefined
  return format.schema === undefined ? { type: 'json_object' } : { type: 'json_schema', schema: format.schema }
}

function chatMessages(message: LanguageModelV3Message): ChatMessage[] {
  switch (message.role) {
    case 'system':
      return [{ role: 'system', content: message.content }]
    case 'user':
      return [{ role: 'user', content: message.content.map(textPart) }]
    case 'tool':
      return message.content.flatMap(part => (part.type === 'tool-result' ? [toolResult(part)] : []))
    case 'assistant':
      return assistantMessages(message)
  }
}

function assistantMessages(message: Extract<LanguageModelV3Message, { role: 'assistant' }>): ChatMessage[] {
  const parts: ContentPart[] = []
  const calls: { id: string; type: string; function: { name: string; arguments: unknown } }[] = []
  const results: ChatMessage[] = []
  let thinking = ''
  for (const part of message.content) {
    if (part.type === 'reasoning') thinking += part.text
    else if (part.type === 'tool-call') {
      calls.push({ id: part.toolCallId, type: 'function', function: { name: part.toolName, arguments: part.input } })
    } else if (part.type === 'tool-result') results.push(toolResult(part))
    else parts.push(textPart(part))
  }
  const answer: ChatMessage = {
    role: 'assistant',
    content: parts,
    ...(thinking !== '' && { reasoning_content: thinking }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
  return [answer, ...results]
}

function textPart(part: { type: string; text?: string; mediaType?: string }): ContentPart {
  if (part.type === 'text') return { type: 'text', text: part.text }
  throw new OptionError('prompt', `a part of type ${part.mediaType ?? part.type}`, 'text: this model reads text alone')
}

function toolResult({ toolCallId, output }: LanguageModelV3ToolResultPart): ChatMessage {
  return { role: 'tool', tool_call_id: toolCallId, content: resultText(output) }
}

function resultText(output: LanguageModelV3ToolResultPart['output']): string {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value
    case 'execution-denied':
      return output.reason ?? 'the call was not allowed'
    case 'content':
      return output.value.map(part => textPart(part).text).join('\n')
    default:
      return JSON.stringify(output.value)
  }
}
