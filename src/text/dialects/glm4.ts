// Calls are a bare name and `<arg_key>`, `<arg_value>` pairs inside of `<tool_call>`: GLM-4.5 and later. Templates ask for
// thinking, but leave it to the model to open it.
import { ArgumentKeyReader } from '../answer/argumentKeyReader.js'
import { TagSplitter } from '../answer/tagSplitter.js'
import type { Dialect } from './dialect.js'

const thinking = { open: '<think>', close: '</think>' }
const call = { open: '<tool_call>', close: '</tool_call>' }

export const glm4: Dialect = {
  name: 'glm4',
  isSpokenBy: template => template.includes('<arg_key>'),
  thinking,
  layout: { kind: 'tags', call, afterThinking: `${thinking.close}\n` },
  call: {
    open: '',
    name: 'bare',
    afterName: '\n',
    arguments: { open: '<arg_key>', afterKey: '</arg_key>\n<arg_value>', close: '</arg_value>\n' },
    close: '',
  },
  marks: [
    ...[thinking.open, thinking.close, call.open, call.close],
    ...['<arg_key>', '</arg_key>', '<arg_value>', '</arg_value>'],
  ],
  endTokens: ['<|endoftext|>', '<|user|>', '<|observation|>'],
  takesWrittenCalls: true,
  createSplitter: options => {
    const read = () => new ArgumentKeyReader(call.close, options?.parameterType)
    return new TagSplitter({ thinking, calls: [{ open: call.open, read }] }, options)
  },
}
