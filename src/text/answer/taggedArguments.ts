// Arguments that are written one after the other between tags, each as bare text. Takes what follows the call's name, character
// by character, and gives the JSON text of all of them, as much of it as is certain. A value may contain any tag, its own
// end too: it ends where its end is followed by the next parameter or by the end of the call.
import type { CallState } from './callReader.js'
import type { ParameterType } from './splitter.js'

export interface ArgumentTags {
  readonly open: string // before a key
  readonly afterKey: readonly string[] // between key and value, with whitespace between these
  readonly close: string // after a value
  readonly end: readonly string[] // after the last parameter, with whitespace between these
  /** One newline at each end of a value belongs to the tags. */
  readonly valueOnOwnLines: boolean
}

type Place = 'between' | 'key' | 'afterKey' | 'value' | 'ended' | 'lost'

export class TaggedArguments {
  private place: Place = 'between'
  private held = '' // may become a tag
  private key = ''
  private isFirst = true
  private value: string[] = [] // of a parameter that is told when it is whole
  private type: string | undefined // of the value
  private atValueStart = false
  private blankAfterClose = false
  private fresh = '{'

  constructor(
    private readonly tags: ArgumentTags,
    private readonly tool: string,
    private readonly parameterType: ParameterType | undefined,
  ) {}

  /** Whether the end of the call was read, or something that has no place here. */
  get state(): CallState {
    return this.place === 'ended' ? 'closed' : this.place === 'lost' ? 'broken' : 'open'
  }

  /** Whether a parameter was begun: before that anything might follow the name. */
  get hasBegun(): boolean {
    return !this.isFirst
  }

  take(): string {
    const { fresh } = this
    this.fresh = ''
    return fresh
  }

  push(character: string): void {
    if (this.place === 'between') this.between(character)
    else if (this.place === 'key') this.keyCharacter(character)
    else if (this.place === 'afterKey') this.afterKey(character)
    else if (this.place === 'value') this.valueCharacter(character)
    else if (character.trim() !== '') this.place = 'lost'
  }

  /** Whether the arguments are whole. The last tag of the call need not be there. */
  finish(): boolean {
    const rest = this.place === 'between' ? this.held : this.place === 'value' ? this.afterClose() : null
    if (rest !== null && isMadeOf(rest.trimEnd(), this.tags.end.slice(0, -1))) {
      if (this.place === 'value') this.endValue()
      this.place = 'ended'
    }
    if (this.place !== 'ended') return false
    this.fresh += '}'
    return true
  }

  private between(character: string): void {
    if (this.held === '' && character.trim() === '') return
    this.held += character
    const { open, end } = this.tags
    if (this.held === open) this.startKey()
    else if (isMadeOf(this.held, end)) this.place = 'ended'
    else if (!open.startsWith(this.held) && !leadsTo(this.held, end)) this.place = 'lost'
  }

  private startKey(): void {
    this.held = ''
    this.key = ''
    this.place = 'key'
  }

  private keyCharacter(character: string): void {
    const [close] = this.tags.afterKey
    this.key += character
    if (character === '\n') this.place = 'lost'
    else if (this.key.endsWith(close)) {
      this.key = this.key.slice(0, -close.length)
      this.place = this.key === '' ? 'lost' : 'afterKey'
      this.held = close
      this.enterValue()
    }
  }

  private afterKey(character: string): void {
    this.held += character
    this.enterValue()
  }

  private enterValue(): void {
    const { afterKey } = this.tags
    if (this.place === 'lost') return
    if (isMadeOf(this.held, afterKey)) this.startValue()
    else if (!leadsTo(this.held, afterKey)) this.place = 'lost'
  }

  private startValue(): void {
    this.held = ''
    this.place = 'value'
    this.value = []
    this.atValueStart = true
    const key = this.key.trim()
    this.type = this.parameterType?.(this.tool, key)
    this.fresh += `${this.isFirst ? '' : ', '}${JSON.stringify(key)}: ${this.isText ? '"' : ''}`
    this.isFirst = false
  }

  private valueCharacter(character: string): void {
    if (this.atValueStart) {
      this.atValueStart = false
      if (character === '\n' && this.tags.valueOnOwnLines) return
    }
    this.held += character
    // However much whitespace follows the end of a value, it is looked at once.
    if (this.blankAfterClose && character.trim() === '') return
    for (;;) {
      const after = this.afterClose()
      this.blankAfterClose = after === ''
      if (after === this.tags.open) {
        this.endValue()
        this.startKey()
        return
      }
      if (after !== null && isMadeOf(after, this.tags.end)) {
        this.endValue()
        this.place = 'ended'
        return
      }
      if (after === null ? this.mayClose(this.held) : this.mayGoOn(after)) return
      const [first] = this.held
      this.tell(first)
      this.held = this.held.slice(first.length)
    }
  }

  /** What stands after the value's end, whitespace aside; null where what is held is no end. */
  private afterClose(): string | null {
    const { close, valueOnOwnLines } = this.tags
    const at = valueOnOwnLines && this.held.startsWith('\n') ? 1 : 0
    return this.held.startsWith(close, at) ? this.held.slice(at + close.length).trimStart() : null
  }

  private mayClose(held: string): boolean {
    const { close, valueOnOwnLines } = this.tags
    return close.startsWith(held) || (valueOnOwnLines && held[0] === '\n' && close.startsWith(held.slice(1)))
  }

  private mayGoOn(after: string): boolean {
    return this.tags.open.startsWith(after) || leadsTo(after, this.tags.end)
  }

  /** Text is told as it comes; of other values only the whole says what they are. */
  private get isText(): boolean {
    return this.type === undefined || this.type === 'string'
  }

  private tell(text: string): void {
    if (this.isText) this.fresh += JSON.stringify(text).slice(1, -1)
    else this.value.push(text)
  }

  private endValue(): void {
    this.fresh += this.isText ? '"' : jsonOf(this.value.join(''), this.type)
    this.held = ''
    this.blankAfterClose = false
  }
}

/** Whether `text` is these parts, one after the other with whitespace between. */
function isMadeOf(text: string, parts: readonly string[]): boolean {
  let rest = text
  for (const part of parts) {
    if (!rest.startsWith(part)) return false
    rest = rest.slice(part.length).trimStart()
  }
  return rest === ''
}

/** Whether `text` could become these parts. */
function leadsTo(text: string, parts: readonly string[]): boolean {
  let rest = text
  for (const part of parts) {
    if (part.startsWith(rest)) return true
    if (!rest.startsWith(part)) return false
    rest = rest.slice(part.length).trimStart()
  }
  return rest === ''
}

/** Values between tags are bare text: the tool's schema says what they are. Without one, and where it fails, text. */
function jsonOf(value: string, type: string | undefined): string {
  const trimmed = value.trim()
  if (type === 'mixed' && trimmed !== 'null' && !/^".*"$/s.test(trimmed)) return JSON.stringify(value)
  const literal = type === 'boolean' || type === 'null' ? trimmed.toLowerCase().replace(/^none$/, 'null') : trimmed
  try {
    JSON.parse(literal)
    return literal
  } catch {
    return JSON.stringify(value)
  }
}
