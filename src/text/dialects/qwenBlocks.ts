// What the dialects of Qwen's families have in common: `<think>`, and calls between `<tool_call>` and `</tool_call>`, in JSON
// or in tags. Which of the two a model was trained on shows in its template; both are understood from all of them.
import type { CallReader, CallState, ToolCall } from '../answer/callReader.js'
import { FunctionCallReader } from '../answer/functionCallReader.js'
import { JsonCallReader } from '../answer/jsonCallReader.js'
import type { SplitterOptions } from '../answer/splitter.js'
import { type CallSyntax, TagSplitter } from '../answer/tagSplitter.js'
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

/** A call in a block whose first character says in which of several ways it is written. */
class BlockReader implements CallReader {
  private blank = ''
  private reader: CallReader | null = null

  constructor(private readonly readers: Readonly<Record<string, () => CallReader>>) {}

  get text(): string {
    return this.blank + (this.reader?.text ?? '')
  }

  get name(): string | null {
    return this.reader?.name ?? null
  }

  push(character: string): CallState {
    if (this.reader === null) {
      if (character.trim() === '' || !Object.hasOwn(this.readers, character)) {
        this.blank += character
        return character.trim() === '' ? 'open' : 'broken'
      }
      this.reader = this.readers[character]()
    }
    return this.reader.push(character)
  }

  takeArguments(): string {
    return this.reader?.takeArguments() ?? ''
  }

  call(): ToolCall | null {
    return this.reader?.call() ?? null
  }
}
