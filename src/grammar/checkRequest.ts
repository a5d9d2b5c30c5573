// What an answer shall look like, as callers without types may write it: a wish that is not understood must not be
// ignored. Apart from what grants the wishes, which is loaded only when there are any.
import { OptionError } from '../base/errors.js'
import type { AnswerRequest } from './constraintFactory.js'

export function checkRequest({ responseFormat, toolChoice }: AnswerRequest): void {
  if (responseFormat !== undefined && !isResponseFormat(responseFormat)) {
    const want = "an object of type 'text', 'json_object', 'json_schema' with a schema, or 'grammar' with a grammar"
    throw new OptionError('responseFormat', JSON.stringify(responseFormat), want)
  }
  if (toolChoice !== undefined && !isToolChoice(toolChoice)) {
    throw new OptionError('toolChoice', JSON.stringify(toolChoice), "'none', 'auto', 'required' or { name }")
  }
}

/** Whether the answer must take a form from its first token on: one that text alone does not have. */
export function asksForForm({
  responseFormat,
  toolChoice,
}: Pick<AnswerRequest, 'responseFormat' | 'toolChoice'>): boolean {
  const isFree = toolChoice === undefined || toolChoice === 'auto' || toolChoice === 'none'
  return !isFree || (responseFormat?.type ?? 'text') !== 'text'
}

function isResponseFormat(format: unknown): boolean {
  if (typeof format !== 'object' || format === null || !('type' in format)) return false
  const { type } = format
  if (type === 'json_schema') return 'schema' in format && format.schema !== undefined
  if (type === 'grammar') return 'grammar' in format && typeof format.grammar === 'string'
  return type === 'text' || type === 'json_object'
}

function isToolChoice(choice: unknown): boolean {
  if (typeof choice === 'object' && choice !== null) return 'name' in choice && typeof choice.name === 'string'
  return choice === 'none' || choice === 'auto' || choice === 'required'
}
