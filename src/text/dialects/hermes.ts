// Calls are JSON inside of `<tool_call>`: Qwen3, Qwen3-Next, and most models that were trained after Hermes.
import type { Dialect } from './dialect.js'
import { CALL, JSON_CALL, splitQwen, THINKING } from './qwenBlocks.js'

export const hermes: Dialect = {
  name: 'hermes',
  isSpokenBy: template => template.includes(`${CALL.open}\\n{`) || template.includes(`${CALL.open}\n{`),
  thinking: THINKING,
  layout: { kind: 'tags', call: CALL, afterThinking: `\n${THINKING.close}\n\n` },
  call: JSON_CALL,
  marks: [THINKING.open, THINKING.close, CALL.open, CALL.close],
  endTokens: [],
  takesWrittenCalls: true,
  createSplitter: splitQwen,
}
