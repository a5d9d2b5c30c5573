// Calls are `<function=name>` blocks inside of `<tool_call>`, and the model does not think: Qwen3-Coder, Qwen3-Coder-Next.
import type { Dialect } from './dialect.js'
import { CALL, FUNCTION_CALL, splitBareFunctions, THINKING } from './qwenBlocks.js'

export const qwen3_coder: Dialect = {
  name: 'qwen3_coder',
  isSpokenBy: template => template.includes('<function=') && !template.includes(THINKING.open),
  thinking: null,
  layout: { kind: 'tags', call: CALL, afterThinking: '' },
  call: FUNCTION_CALL,
  marks: [CALL.open, CALL.close],
  endTokens: [],
  takesWrittenCalls: true,
  createSplitter: splitBareFunctions,
}
