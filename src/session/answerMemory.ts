// What the model said, so that it can be put back into later prompts exactly as it was said. Some things get lost when a
// client sends an answer back: the spacing of a tool call (the client sends parsed JSON), the thinking before it (most
// clients drop it), and the tokens themselves where the model did not write them in the tokenizer's own way. Each would end
// a reusable prefix. Bounded; forgetting costs only speed.

import type { Section } from '../text/encoder.js'
import type { PlainMessage, PlainToolCall } from '../text/messages.js'
import type { TextWorkers } from '../text/textWorkers.js'
import type { Tokenizer } from '../text/tokenizer.js'
import { commonPrefix } from './prefixMatch.js'
import type { Prompt } from './prompt.js'

const REMEMBERED_CHARACTERS = 8 * 2 ** 20
const REMEMBERED_STARTS = 32

/** An answer with tool calls as it was generated. */
interface Written {
  readonly thinking: string
  readonly text: string // all that came after the thinking
}

interface KnownStart {
  readonly text: string
  readonly mark: string
  readonly ids: readonly number[]
  readonly sections: readonly Section[]
}

export class AnswerMemory {
  private readonly calls = new Map<string, Written>() // by message key, least recently used first
  private callCharacters = 0 // of `calls`, keys and texts
  private readonly starts: KnownStart[] = [] // newest last

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly workers: TextWorkers,
  ) {}

  /** An answer with tool calls becomes the text that the model wrote for it, where that is known. */
  recall(message: PlainMessage): PlainMessage {
    if (message.role !== 'assistant' || !message.tool_calls) return message
    if (message.content.length > this.callCharacters) return message // longer than all that is known together
    const key = messageKey(message.content, message.tool_calls)
    const written = this.calls.get(key)
    if (written === undefined) return message
    this.calls.delete(key)
    this.calls.set(key, written)
    const { tool_calls: _, ...rest } = message
    const thinking = rest.reasoning_content ?? written.thinking
    return { ...rest, content: written.text, ...(thinking !== '' && { reasoning_content: thinking }) }
  }

  /** Remembers an answer with tool calls by what a client will send of it. */
  rememberCalls(content: string, calls: readonly { name: string; arguments: string }[], written: Written): void {
    const plain = calls.map(call => ({
      type: 'function' as const,
      function: { name: call.name, arguments: parsed(call.arguments) },
    }))
    const key = messageKey(content, plain)
    this.forgetCall(key)
    this.calls.set(key, written)
    this.callCharacters += sizeOf(key, written)
    for (const oldest of this.calls.keys()) {
      if (this.callCharacters <= REMEMBERED_CHARACTERS) break
      this.forgetCall(oldest)
    }
  }

  private forgetCall(key: string): void {
    const written = this.calls.get(key)
    if (written !== undefined) this.callCharacters -= sizeOf(key, written)
    this.calls.delete(key)
  }

  /** Remembers the ids of an answer where encoding its text would give others; returns whether it would not. */
  async rememberIds(prompt: Prompt, answer: readonly number[], signal: AbortSignal): Promise<boolean> {
    const raw = this.tokenizer.decode(answer)
    const { sections, mark } = prompt
    const last = sections.at(-1) ?? { start: 0, token: 0 }
    const text = prompt.text.slice(last.start) + raw
    const again = (await this.workers.encode(text, { mark }, Number.POSITIVE_INFINITY, signal)).ids
    const ids = [...prompt.ids, ...answer]
    if (again.length === ids.length - last.token && commonPrefix(again, ids.slice(last.token)) === again.length)
      return true
    this.starts.push({ text: prompt.text + raw, mark, ids, sections })
    if (this.starts.length > REMEMBERED_STARTS) this.starts.shift()
    return false
  }

  /** The longest remembered start of `text` that ends where an added token follows, so that no merge crosses its end. */
  knownStart(text: string, mark: string): KnownStart | null {
    let best: KnownStart | null = null
    for (const start of this.starts) {
      if (start.mark !== mark || start.text.length <= (best?.text.length ?? 0) || !text.startsWith(start.text)) continue
      const rest = text.slice(start.text.length, start.text.length + 64)
      if (this.tokenizer.addedTokens.some(token => rest.startsWith(token.text))) best = start
    }
    return best
  }
}

function sizeOf(key: string, { thinking, text }: Written): number {
  return key.length + thinking.length + text.length
}

function messageKey(content: string, calls: readonly PlainToolCall[]): string {
  return JSON.stringify([content.trim(), calls.map(call => [call.function.name, sortedKeys(call.function.arguments)])])
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return json
  }
}

function sortedKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortedKeys)
  if (value === null || typeof value !== 'object') return value
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return entries.map(([key, item]) => [key, sortedKeys(item)])
}
