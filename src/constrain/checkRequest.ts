// What an answer shall look like, as callers without types may write it: a wish that is not understood must not be
// ignored. Apart from what grants the wishes, which is loaded only when there are any.
import { OptionError } from '../errors.js'
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
