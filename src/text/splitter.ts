// Splits the text of an answer, as it streams in, into thinking, text and tool calls, and finds stop sequences. A state
// machine over characters, so that the events do not depend on how the text was cut into pieces. Text is held back only
// while it could still be the beginning of a tag or a stop sequence. A tool call that does not parse comes out as text,
// unless it lacks its end because the answer was cut off.
import { parseToolCall, type ToolCall, ToolCallScanner } from './toolCall.js'

export interface SplitterOptions {
  /** The prompt ended inside `<think>`. */
  readonly insideThinking?: boolean
  /** Recognize `<think>` at the start of the answer. Default true. */
  readonly thinking?: boolean
  /** Recognize `<tool_call>`. Default true. */
  readonly toolCalls?: boolean
  /** Type of a tool's parameter by its schema ('string', 'integer', …), for calls that are not written in JSON. */
  readonly parameterType?: (tool: string, parameter: string) => string | undefined
  readonly stop?: readonly string[]
}

export type SplitEvent =
  | { readonly type: 'thinking'; readonly text: string }
  | { readonly type: 'text'; readonly text: string }
  | ({ readonly type: 'toolCall' } & ToolCall)

type Mode = 'start' | 'thinking' | 'text' | 'call'

const THINK = '<think>'
const THINK_END = '</think>'
const CALL = '<tool_call>'

export class Splitter {
  /** The stop sequence that was met; from then on all input is ignored. */
  stopped: string | null = null
  private mode: Mode
  private held = '' // may become a tag or a stop sequence
  private newlines = '' // left out where they only surround a tag
  private skipNewlines: boolean
  private sawCall = false
  private scanner = new ToolCallScanner()
  private events: SplitEvent[] = []
  private readonly stops: readonly string[]

  constructor(private readonly options: SplitterOptions = {}) {
    this.mode = options.insideThinking ? 'thinking' : options.thinking === false ? 'text' : 'start'
    this.skipNewlines = options.insideThinking === true
    this.stops = (options.stop ?? []).filter(stop => stop.length > 0)
  }

  /** Whether the answer is inside `<think>` now. */
  get inThinking(): boolean {
    return this.mode === 'thinking'
  }

  push(text: string): SplitEvent[] {
    for (const character of text) {
      if (this.stopped !== null) break
      if (this.mode === 'call') this.callCharacter(character)
      else this.textCharacter(character)
    }
    return this.take()
  }

  /** The answer is over: what was held back comes out, but not the beginning of a call that a limit has cut off. */
  end(isCutOff = false): SplitEvent[] {
    if (this.stopped !== null) return this.take()
    if (this.mode === 'call') {
      const call = parseToolCall(this.scanner.text, this.options.parameterType)
      if (call !== null) this.emitCall(call)
      else if (isCutOff) this.newlines = ''
      else this.callIsText()
    }
    this.release(this.held.length)
    if (this.mode !== 'thinking' && !this.sawCall) this.emit(this.newlines)
    this.newlines = ''
    return this.take()
  }

  private textCharacter(character: string): void {
    this.held += character
    const tags = this.tags()
    for (const tag of tags) {
      if (!this.held.endsWith(tag)) continue
      this.release(this.held.length - tag.length)
      this.held = ''
      this.enter(tag)
      return
    }
    if (this.mode !== 'thinking') {
      const stop = longest(this.stops.filter(candidate => this.held.endsWith(candidate)))
      if (stop !== null) {
        this.release(this.held.length - stop.length)
        this.emit(this.newlines)
        this.newlines = ''
        this.held = ''
        this.stopped = stop
        return
      }
    }
    const patterns = this.mode === 'thinking' ? tags : [...tags, ...this.stops]
    this.release(this.held.length - longestPrefixAtEnd(this.held, patterns))
    if (this.mode === 'start' && this.held === '' && character.trim() !== '') this.mode = 'text'
  }

  private tags(): string[] {
    const calls = this.options.toolCalls === false ? [] : [CALL]
    if (this.mode === 'thinking') return [THINK_END]
    return this.mode === 'start' ? [THINK, ...calls] : calls
  }

  private enter(tag: string): void {
    if (tag === THINK) {
      this.newlines = ''
      this.mode = 'thinking'
      this.skipNewlines = true
    } else if (tag === THINK_END) {
      this.newlines = ''
      this.mode = 'text'
      this.skipNewlines = true
    } else {
      this.mode = 'call'
      this.scanner = new ToolCallScanner()
    }
  }

  private callCharacter(character: string): void {
    const state = this.scanner.push(character)
    if (state === 'open') return
    const call = state === 'closed' ? parseToolCall(this.scanner.text, this.options.parameterType) : null
    if (call !== null) this.emitCall(call)
    else this.callIsText()
  }

  private emitCall(call: ToolCall): void {
    this.newlines = ''
    this.events.push({ type: 'toolCall', ...call })
    this.mode = 'text'
    this.sawCall = true
    this.skipNewlines = true
  }

  private callIsText(): void {
    this.mode = 'text'
    this.emitText(CALL + this.scanner.text)
  }

  /** Lets the first `count` characters of what is held go, except newlines that may turn out to surround a tag. */
  private release(count: number): void {
    if (count <= 0) return
    const text = this.held.slice(0, count)
    this.held = this.held.slice(count)
    this.emitText(text)
  }

  private emitText(text: string): void {
    // Before `<think>` whitespace may still be dropped; in plain text newlines matter only around tool calls.
    const holds = this.mode === 'thinking' || this.options.toolCalls !== false || this.mode === 'start'
    for (const character of text) {
      const blank = this.mode === 'start' ? character.trim() === '' : character === '\n'
      if (blank && this.skipNewlines) continue
      if (blank && holds) {
        this.newlines += character
        continue
      }
      this.skipNewlines = false
      this.emit(this.newlines + character)
      this.newlines = ''
    }
  }

  private emit(text: string): void {
    if (text === '') return
    const type = this.mode === 'thinking' ? 'thinking' : 'text'
    const last = this.events.at(-1)
    if (last?.type === type) this.events[this.events.length - 1] = { type, text: last.text + text }
    else this.events.push({ type, text })
  }

  private take(): SplitEvent[] {
    const { events } = this
    this.events = []
    return events
  }
}

function longest(texts: readonly string[]): string | null {
  return texts.reduce<string | null>((best, text) => (best === null || text.length > best.length ? text : best), null)
}

/** Length of the longest end of `text` that is the beginning of a pattern. */
function longestPrefixAtEnd(text: string, patterns: readonly string[]): number {
  let best = 0
  for (const pattern of patterns) {
    for (let length = Math.min(text.length, pattern.length - 1); length > best; length--) {
      if (pattern.startsWith(text.slice(text.length - length))) best = length
    }
  }
  return best
}
