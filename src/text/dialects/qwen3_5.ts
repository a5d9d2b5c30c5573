// Calls are `<function=name>` blocks inside of `<tool_call>`, and the model thinks: Qwen3.5 and later.
import type { Dialect } from './dialect.js'
import { CALL, FUNCTION_CALL, splitQwen, THINKING } from './qwenBlocks.js'

export const qwen3_5: Dialect = {
  name: 'qwen3_5',
  isSpokenBy: template => template.includes('<function=') && template.includes(THINKING.open),
  thinking: THINKING,
  layout: { kind: 'tags', call: CALL, afterThinking: `\n${THINKING.close}\n\n` },
  call: FUNCTION_CALL,
  marks: [THINKING.open, THINKING.close, CALL.open, CALL.close],
  endTokens: [],
  takesWrittenCalls: true,
  createSplitter: splitQwen,
}
