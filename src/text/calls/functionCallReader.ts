// A call that is written as `<function=name>`, then `<parameter=key>` with the value on lines of its own, then `</function>`.
// The call is closed by what follows `</function>`, so that a value may contain both.
import type { ParameterType } from '../splitter.js'
import type { CallReader, CallState, ToolCall } from './callReader.js'
import { TaggedArguments } from './taggedArguments.js'

const OPEN = '<function='
const END = '</function>'
const RECENT = 1024

export class FunctionCallReader implements CallReader {
  name: string | null = null
  private readonly characters: string[] = []
  private recent = '' // the end of the text: looking at the whole at each character would take n² steps
  private head: string | null = '' // until the name is known
  private arguments: TaggedArguments | null = null
  private told = '' // of the arguments

  constructor(
    private readonly close: string,
    private readonly parameterType: ParameterType | undefined,
  ) {}

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
    this.recent += character
    if (this.recent.length > RECENT) this.recent = this.recent.slice(-RECENT / 2)
    if (character !== '>' || !this.recent.endsWith(this.close)) return 'open'
    return this.recent.slice(0, -this.close.length).trimEnd().endsWith(END) ? 'closed' : 'open'
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
      end: [END, this.close],
      valueOnOwnLines: true,
    }
    this.arguments = new TaggedArguments(tags, this.name, this.parameterType)
  }
}
