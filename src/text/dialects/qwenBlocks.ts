// What the dialects of Qwen's families have in common: `<think>`, and calls between `<tool_call>` and `</tool_call>`, in JSON
// or in tags. Which of the two a model was trained on shows in its template; both are understood from all of them.
import { FunctionCallReader } from '../answer/functionCallReader.js'
import { JsonCallReader } from '../answer/jsonCallReader.js'
import type { SplitterOptions } from '../answer/splitter.js'
import { type CallSyntax, TagSplitter } from '../answer/tagSplitter.js'
import { BlockReader } from './blockReader.js'
import type { CallForm } from './dialect.js'

export const THINKING = { open: '<think>', close: '</think>' }
export const CALL = { open: '<tool_call>', close: '</tool_call>' }

export const JSON_CALL: CallForm = {
  open: '\n{"name": "',
  name: 'quoted',
  afterName: '", "arguments": ',
  arguments: 'json',
  close: '}\n',
}

export const FUNCTION_CALL: CallForm = {
  open: '\n<function=',
  name: 'bare',
  afterName: '>\n',
  arguments: { open: '<parameter=', afterKey: '>\n', close: '\n</parameter>\n' },
  close: '</function>\n',
}

export function splitQwen(options?: SplitterOptions): TagSplitter {
  return new TagSplitter({ thinking: THINKING, calls: [blockCall(options)] }, options)
}

/** Where models forget `<tool_call>` before a call now and then, and only that. */
export function splitBareFunctions(options?: SplitterOptions): TagSplitter {
  const bare = { open: '<function=', read: () => new FunctionCallReader(null, options?.parameterType) }
  return new TagSplitter({ thinking: THINKING, calls: [blockCall(options), bare], strayClose: CALL.close }, options)
}

function blockCall(options?: SplitterOptions): CallSyntax {
  const read = () =>
    new BlockReader({
      '{': () => new JsonCallReader(CALL.close),
      '<': () => new FunctionCallReader(CALL.close, options?.parameterType),
    })
  return { open: CALL.open, read }
}
