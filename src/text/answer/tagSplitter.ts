// Splits answers in which tags stand around thinking and tool calls, and finds stop sequences. A state machine over
// characters, so that the events do not depend on how the text was cut into pieces. Text is held back only while it
// could still be the beginning of a tag or a stop sequence. A tool call that does not parse comes out as text,
// unless it lacks its end because the answer was cut off.

import { CallProgress } from './callProgress.js'
import type { CallReader, ToolCall } from './callReader.js'
import { SplitEvents } from './splitEvents.js'
import type { AnswerSplitter, SplitEvent, SplitterOptions } from './splitter.js'
import { longestPrefixAtEnd, realStops, stopAtEnd } from './stopSequences.js'

export interface TagSyntax {
  readonly thinking: { readonly open: string; readonly close: string }
  readonly calls: readonly CallSyntax[]
  /** Closes nothing where it directly follows a call: left out. */
  readonly strayClose?: string
}

export interface CallSyntax {
  readonly open: string
  /** Reads one call from the character after that. */
  readonly read: () => CallReader
}

type Mode = 'start' | 'thinking' | 'text' | 'call'

export class TagSplitter implements AnswerSplitter {
  stopped: string | null = null
  private mode: Mode
  private held = '' // may become a tag or a stop sequence
  private newlines = '' // left out where they only surround a tag
  private skipNewlines: boolean
  private sawCall = false
  private opened: CallSyntax // the call that is being read
  private reader: CallReader
  private readonly progress: CallProgress | null
  private readonly events = new SplitEvents()
  private readonly stops: readonly string[]

  constructor(
    private readonly syntax: TagSyntax,
    private readonly options: SplitterOptions = {},
  ) {
    this.mode = options.insideThinking ? 'thinking' : options.thinking === false ? 'text' : 'start'
    this.skipNewlines = options.insideThinking === true && !options.thinkingBegun
    this.opened = syntax.calls[0]
    this.reader = this.opened.read()
    this.progress = options.callProgress ? new CallProgress(event => this.events.tell(event)) : null
    this.stops = realStops(options.stop)
  }

  get inThinking(): boolean {
    return this.mode === 'thinking'
  }

  push(text: string): SplitEvent[] {
    for (const character of text) {
      if (this.stopped !== null) break
      if (this.mode === 'call') this.callCharacter(character)
      else this.textCharacter(character)
    }
    return this.events.take()
  }

  /** Tags are known by their text, whatever the tokenizer makes of them. */
  mark(token: string): SplitEvent[] {
    return this.push(token)
  }

  end(isCutOff = false): SplitEvent[] {
    if (this.stopped !== null) return this.events.take()
    if (this.mode === 'call') {
      const call = this.reader.call()
      if (call !== null) this.emitCall(call)
      else if (isCutOff) this.forgetCall()
      else this.callIsText()
    }
    this.release(this.held.length)
    if (this.mode !== 'thinking' && !this.sawCall) this.emit(this.newlines)
    this.newlines = ''
    return this.events.take()
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
      const stop = stopAtEnd(this.held, this.stops)
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
    const { thinking, strayClose } = this.syntax
    const calls = this.options.toolCalls === false ? [] : this.syntax.calls.map(({ open }) => open)
    if (strayClose !== undefined && this.sawCall && this.skipNewlines) calls.push(strayClose)
    if (this.mode === 'thinking') return [thinking.close]
    return this.mode === 'start' ? [thinking.open, ...calls] : calls
  }

  private enter(tag: string): void {
    if (tag === this.syntax.thinking.open) {
      this.newlines = ''
      this.mode = 'thinking'
      this.skipNewlines = true
    } else if (tag === this.syntax.thinking.close) {
      this.newlines = ''
      this.mode = 'text'
      this.skipNewlines = true
    } else {
      const opened = this.syntax.calls.find(({ open }) => open === tag)
      if (opened === undefined) return
      this.mode = 'call'
      this.opened = opened
      this.reader = opened.read()
    }
  }

  private callCharacter(character: string): void {
    const state = this.reader.push(character)
    if (state === 'open') {
      this.progress?.follow(this.reader)
      return
    }
    const call = state === 'closed' ? this.reader.call() : null
    if (call !== null) this.emitCall(call)
    else this.callIsText()
  }

  private emitCall(call: ToolCall): void {
    this.newlines = ''
    this.progress?.finish(call)
    this.events.call(call)
    this.mode = 'text'
    this.sawCall = true
    this.skipNewlines = true
  }

  private forgetCall(): void {
    this.newlines = ''
    this.progress?.drop()
  }

  private callIsText(): void {
    this.progress?.drop()
    this.mode = 'text'
    this.emitText(this.opened.open + this.reader.text)
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
    this.events.say(this.mode === 'thinking' ? 'thinking' : 'text', text)
  }
}
