// A call that is written as `<function=name>`, then `<parameter=key>` with the value on lines of its own, then `</function>`.
// The call is closed by what follows `</function>`, so that a value may contain both. Without a block around it, it is broken as
// soon as something else stands where its parameters should.
import type { CallReader, CallState, ToolCall } from './callReader.js'
import type { ParameterType } from './splitter.js'
import { TaggedArguments } from './taggedArguments.js'

const OPEN = '<function='
const END = '</function>'
const RECENT = 1024

export class FunctionCallReader implements CallReader {
  name: string | null = null
  private readonly characters: string[] = []
  private recent = '' // the end of the text: looking at the whole at each character would take n² steps
  private head: string | null // until the name is known
  private arguments: TaggedArguments | null = null
  private told = '' // of the arguments

  /** `close`: of the block around the call, in which `<function=` is still to come; null: there is none, and it has come. */
  constructor(
    private readonly close: string | null,
    private readonly parameterType: ParameterType | undefined,
  ) {
    this.head = close === null ? OPEN : ''
  }

  get text(): string {
    return this.characters.join('')
  }

  push(character: string): CallState {
    this.characters.push(character)
    if (this.head !== null) {
      this.head += character
      if (!OPEN.startsWith(this.head.slice(0, OPEN.length))) return 'broken'
      this.readName(this.head, character)
    } else this.arguments?.push(character)
    if (this.close !== null) return this.closedBy(this.close, character)
    return this.head !== null ? 'open' : (this.arguments?.state ?? 'broken')
  }

  private closedBy(close: string, character: string): CallState {
    this.recent += character
    if (this.recent.length > RECENT) this.recent = this.recent.slice(-RECENT / 2)
    if (character !== '>' || !this.recent.endsWith(close)) return 'open'
    return this.recent.slice(0, -close.length).trimEnd().endsWith(END) ? 'closed' : 'open'
  }

  takeArguments(): string {
    const fresh = this.arguments?.take() ?? ''
    this.told += fresh
    return fresh
  }

  call(): ToolCall | null {
    if (this.name === null || this.arguments?.finish() !== true) return null
    const told = this.told
    return { name: this.name, arguments: told + this.takeArguments() }
  }

  private readName(head: string, character: string): void {
    if (character !== '>' && character !== '\n') return
    const name = head.slice(OPEN.length, -1)
    this.head = null
    if (character === '\n' || name === '') return
    this.name = name.trim()
    const tags = {
      open: '<parameter=',
      afterKey: ['>'],
      close: '</parameter>',
      end: this.close === null ? [END] : [END, this.close],
      valueOnOwnLines: true,
    }
    this.arguments = new TaggedArguments(tags, this.name, this.parameterType)
  }
}
