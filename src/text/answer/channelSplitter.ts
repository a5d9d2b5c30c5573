// Splits answers that are several messages, each with a header that says to whom it goes and on which channel: thinking, text
// for the user, or a call of a tool. Control tokens separate header, body and messages; text that only spells one of
// them is text. A message that says it is a call and is none comes out as text, unless the answer was cut off in it.
import { BareJsonReader } from './bareJsonReader.js'
import { CallProgress } from './callProgress.js'
import { SplitEvents } from './splitEvents.js'
import type { AnswerSplitter, SplitEvent, SplitterOptions } from './splitter.js'
import { StopSequences } from './stopSequences.js'

export interface ChannelSyntax {
  readonly start: string // begins a header
  readonly body: string // begins a body
  readonly ends: readonly string[] // end a body
  /** Whether a text can be the beginning of a header. */
  readonly mayBeHeader: (text: string) => boolean
  readonly readHeader: (header: string) => ChannelHeader
}

/** What a message is; `tool` is the one that it calls. */
export type ChannelHeader =
  | { readonly kind: 'thinking' }
  | { readonly kind: 'text' }
  | { readonly kind: 'call'; readonly tool: string }

export class ChannelSplitter implements AnswerSplitter {
  private header: string | null // null: inside of a body
  private hasStart = false // the header was begun by its token
  private body: ChannelHeader['kind']
  private opening = '' // of the body
  private reader = new BareJsonReader('')
  private isNewMessage = false
  private readonly spoken = new Set<'thinking' | 'text'>()
  private readonly events = new SplitEvents()
  private readonly stops: StopSequences
  private readonly progress: CallProgress | null

  constructor(
    private readonly syntax: ChannelSyntax,
    private readonly options: SplitterOptions = {},
  ) {
    const { insideThinking = false, insideText = false, stop, callProgress } = options
    this.header = insideThinking || insideText ? null : ''
    this.body = insideThinking ? 'thinking' : 'text'
    this.stops = new StopSequences(stop)
    this.progress = callProgress ? new CallProgress(event => this.events.tell(event)) : null
  }

  get stopped(): string | null {
    return this.stops.found
  }

  get inThinking(): boolean {
    return this.header === null && this.body === 'thinking'
  }

  push(text: string): SplitEvent[] {
    for (const character of text) {
      if (this.stopped !== null) break
      if (this.header === null) this.bodyCharacter(character)
      else this.headerCharacter(character)
    }
    return this.events.take()
  }

  mark(token: string): SplitEvent[] {
    const { start, body, ends } = this.syntax
    if (this.stopped !== null) return []
    if (token === body) {
      if (this.header !== null) this.startBody(this.header)
    } else {
      this.endBody(false)
      const isPartOfHeader = token !== start && !ends.includes(token)
      this.header = isPartOfHeader ? (this.header ?? '') + token : ''
      this.hasStart = token === start || (isPartOfHeader && this.hasStart)
    }
    return this.events.take()
  }

  end(isCutOff = false): SplitEvent[] {
    if (this.stopped !== null) return this.events.take()
    // A short answer without any header may look like the beginning of one.
    if (this.header !== null && !this.hasStart && !this.header.includes('<|')) this.speak('text', this.header)
    this.endBody(isCutOff)
    return this.events.take()
  }

  private headerCharacter(character: string): void {
    const text = `${this.header}${character}`
    this.header = text
    if (this.syntax.mayBeHeader(text)) return
    this.header = null
    this.body = 'text'
    this.isNewMessage = true
    for (const each of text) this.bodyCharacter(each)
  }

  private startBody(header: string): void {
    const read = this.syntax.readHeader(header)
    this.header = null
    this.body = read.kind
    this.isNewMessage = true
    if (read.kind !== 'call') return
    this.opening = header + this.syntax.body
    this.reader = new BareJsonReader(read.tool)
    if (this.options.toolCalls === false) this.callIsText()
  }

  private bodyCharacter(character: string): void {
    if (this.body === 'text') this.speak('text', this.stops.push(character))
    else if (this.body === 'thinking') this.speak('thinking', character)
    else if (this.reader.push(character) === 'broken') this.callIsText()
    else this.progress?.follow(this.reader)
  }

  private endBody(isCutOff: boolean): void {
    if (this.header !== null) return
    if (this.body === 'call') this.endCall(isCutOff)
    if (this.body === 'text') this.speak('text', this.stops.end())
    this.header = ''
  }

  private endCall(isCutOff: boolean): void {
    const call = this.reader.call()
    if (call !== null && !(isCutOff && this.reader.name === null)) {
      this.progress?.finish(call)
      this.events.call(call)
    } else if (isCutOff) this.progress?.drop()
    else this.callIsText()
  }

  private callIsText(): void {
    this.progress?.drop()
    this.body = 'text'
    for (const character of this.opening + this.reader.text) this.bodyCharacter(character)
  }

  /** Between two messages of a kind there is a blank line. */
  private speak(kind: 'thinking' | 'text', text: string): void {
    if (text === '') return
    this.events.say(kind, this.isNewMessage && this.spoken.has(kind) ? `\n\n${text}` : text)
    this.isNewMessage = false
    this.spoken.add(kind)
  }
}
