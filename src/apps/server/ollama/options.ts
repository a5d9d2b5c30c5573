// From a request of ollama's API to the options and messages of a session.
import type { ChatMessage, ChatOptions } from '../../../index.js'
import type { AnswerOptions } from '../../../internal.js'
import { ABSENT_IMAGE, type ImageHandling } from '../absentImages.js'
import { type BegunAnswer, begunAnswer, thinkingByEffort } from '../answerPrefix.js'
import { ApiError } from '../apiError.js'
import type { AnswerFields, ChatRequest, GenerateRequest } from './schemas.js'

export function answerOptions({ options, format }: AnswerFields): AnswerOptions {
  const limit = options?.num_predict ?? -1
  return {
    temperature: options?.temperature ?? undefined,
    topP: options?.top_p ?? undefined,
    topK: options?.top_k == null ? undefined : Math.max(0, options.top_k),
    minP: options?.min_p ?? undefined,
    repetitionPenalty: options?.repeat_penalty ?? undefined,
    presencePenalty: options?.presence_penalty ?? undefined,
    frequencyPenalty: options?.frequency_penalty ?? undefined,
    seed: (options?.seed ?? -1) < 0 ? undefined : (options?.seed as number),
    stop: options?.stop ?? undefined,
    maxTokens: limit < 0 ? undefined : limit,
    fitContext: true,
    responseFormat: responseFormat(format),
  }
}

function responseFormat(format: AnswerFields['format']): AnswerOptions['responseFormat'] {
  if (format == null || format === '') return undefined
  return format === 'json' ? { type: 'json_object' } : { type: 'json_schema', schema: format }
}

export function thinkingOption({ think }: AnswerFields): ChatOptions['thinking'] {
  return typeof think === 'string' ? thinkingByEffort(think) : (think ?? undefined)
}

/** A last message of the assistant's is the beginning of the answer, unless that has to have a form. */
export function promptOptions(
  request: ChatRequest,
  handling: ImageHandling,
): BegunAnswer & Pick<ChatOptions, 'thinking'> {
  const messages = chatMessages(request.messages ?? [], handling)
  const begun = request.format ? null : begunAnswer(messages)
  if (begun === null) return { messages, thinking: thinkingOption(request) }
  return begun.thinkingPrefill || !begun.prefill
    ? { ...begun, thinking: thinkingOption(request) }
    : { ...begun, thinking: false }
}

function chatMessages(messages: NonNullable<ChatRequest['messages']>, handling: ImageHandling): ChatMessage[] {
  return messages.map(({ role, content, thinking, images, tool_name: name, tool_call_id, tool_calls }, index) => ({
    role,
    content: withImages(content ?? '', images, handling, `messages.${index}.images`),
    ...(thinking != null && { reasoning_content: thinking }),
    ...(name != null && { name }),
    ...(tool_call_id != null && { tool_call_id }),
    ...(tool_calls != null && {
      tool_calls: tool_calls.map(call => ({ id: call.id ?? undefined, function: call.function })),
    }),
  }))
}

/** A prompt with a system text before it, as messages. */
export function generateMessages(request: GenerateRequest, handling: ImageHandling): ChatOptions['messages'] {
  const content = rawPrompt(request, handling)
  return [...(request.system ? [{ role: 'system', content: request.system }] : []), { role: 'user', content }]
}

/** The prompt, and a line for each image where those are not refused. */
export function rawPrompt(request: GenerateRequest, handling: ImageHandling): string {
  return withImages(request.prompt ?? '', request.images, handling, 'images')
}

function withImages(text: string, images: GenerateRequest['images'], handling: ImageHandling, path: string): string {
  if (images == null || images.length === 0) return text
  if (handling === 'refuse') {
    throw new ApiError('invalid_request', `${path}: images are not supported: this model reads text alone`)
  }
  return [...images.map(() => ABSENT_IMAGE), text].join('\n')
}
