// What the model said, so that later prompts repeat it exactly. A client that sends an answer back
// loses the spacing of tool calls (it sends parsed JSON), mostly the thinking before them, and the
// tokens, if the model did not write them in the tokenizer's own way: each would end a reusable
// prefix. Stores get notes of it, so that another process makes the same prompts. Bounded;
// forgetting costs only speed.
import type { StoreWait } from '../../stores/storeWait.js'
import type { PlainMessage, PlainToolCall } from '../../text/template/messages.js'
import type { Tokenizer } from '../../text/tokenizer/tokenizer.js'
import type { TextWorkers } from '../../text/workers/textWorkers.js'
import type { NoteStores } from '../stateStores.js'
import { IdMemory } from './tokenIdCache.js'

/** An answer with tool calls as it was generated. */
interface Written {
  readonly thinking: string
  readonly text: string // all that came after the thinking
}

const REMEMBERED_CHARACTERS = 8 * 2 ** 20
const NOTED_CHARACTERS = 2 ** 18 // stores are not asked for longer messages
const ASKED_AT_ONCE = 64 // the last ones of a chat

/** Calls by what clients send back of them; ids by their text, in tokenIdCache.ts. */
export class AnswerMemory {
  readonly calls: CallMemory
  readonly ids: IdMemory

  constructor(tokenizer: Tokenizer, workers: TextWorkers, notes: NoteStores | null) {
    this.calls = new CallMemory(notes)
    this.ids = new IdMemory(tokenizer, workers, notes)
  }
}

/** Answers with tool calls, as the model wrote them, by what clients send back of them. */
class CallMemory {
  private readonly written = new Map<string, Written>() // by message key, least recently used first
  private characters = 0 // of `written`, keys and texts

  constructor(private readonly notes: NoteStores | null) {}

  /** Answers with tool calls become the text that the model wrote for them, where that is known. */
  async recall(
    messages: readonly PlainMessage[],
    scope: string,
    wait: StoreWait,
    signal?: AbortSignal,
  ): Promise<PlainMessage[]> {
    const keys = messages.map(message => this.keyOf(message, scope))
    await this.askFor(
      keys.filter((key): key is string => key !== null),
      scope,
      wait,
      signal,
    )
    return messages.map((message, i) => this.asWritten(message, keys[i]))
  }

  /**
   * Remembers an answer with tool calls by what a client will send of it. Returns the message that this becomes again, also in
   * other processes; null where they are not told.
   */
  remember(
    scope: string,
    content: string,
    calls: readonly { name: string; arguments: string }[],
    written: Written,
  ): PlainMessage | null {
    const plain = calls.map(call => ({
      type: 'function' as const,
      function: { name: call.name, arguments: parsed(call.arguments) },
    }))
    const key = messageKey(scope, content, plain)
    this.keep(key, written)
    if (this.notes === null || sizeOf(key, written) > NOTED_CHARACTERS) return null
    this.notes.note(key, scope, written)
    return this.asWritten({ role: 'assistant', content, tool_calls: plain }, key)
  }

  /** Null: nothing can be known of it. */
  private keyOf({ role, content, tool_calls: calls }: PlainMessage, scope: string): string | null {
    if (role !== 'assistant' || !calls) return null
    // Longer than all that is known together.
    if (content.length > Math.max(this.characters, this.notes === null ? 0 : NOTED_CHARACTERS)) return null
    return messageKey(scope, content, calls)
  }

  private async askFor(keys: readonly string[], scope: string, wait: StoreWait, signal?: AbortSignal): Promise<void> {
    const isUnknown = (key: string) => !this.written.has(key) && key.length <= NOTED_CHARACTERS
    const unknown = [...new Set(keys)].filter(isUnknown).slice(-ASKED_AT_ONCE)
    if (this.notes === null || unknown.length === 0) return
    const values = await this.notes.recall(unknown, scope, wait, signal)
    for (const [i, value] of values.entries()) if (isWritten(value)) this.keep(unknown[i], value)
  }

  private asWritten(message: PlainMessage, key: string | null): PlainMessage {
    const written = key === null ? undefined : this.written.get(key)
    if (key === null || written === undefined) return message
    this.written.delete(key)
    this.written.set(key, written)
    const { tool_calls: _, ...rest } = message
    const thinking = rest.reasoning_content ?? written.thinking
    return { ...rest, content: written.text, ...(thinking !== '' && { reasoning_content: thinking }) }
  }

  private keep(key: string, written: Written): void {
    this.forget(key)
    this.written.set(key, written)
    this.characters += sizeOf(key, written)
    for (const oldest of this.written.keys()) {
      if (this.characters <= REMEMBERED_CHARACTERS) break
      this.forget(oldest)
    }
  }

  private forget(key: string): void {
    const written = this.written.get(key)
    if (written !== undefined) this.characters -= sizeOf(key, written)
    this.written.delete(key)
  }
}

function isWritten(value: unknown): value is Written {
  if (value === null || typeof value !== 'object') return false
  const { thinking, text } = value as Partial<Written>
  return typeof thinking === 'string' && typeof text === 'string'
}

function sizeOf(key: string, { thinking, text }: Written): number {
  return key.length + thinking.length + text.length
}

/** Nobody is told what another scope's model thought. */
function messageKey(scope: string, content: string, calls: readonly PlainToolCall[]): string {
  const plain = calls.map(call => [call.function.name, sortedKeys(call.function.arguments)])
  return JSON.stringify(['calls', scope, content.trim(), plain])
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
