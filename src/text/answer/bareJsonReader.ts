// The arguments of a call whose name is known before them: a JSON object and nothing else. Something outside of it says where
// it ends.
import { type CallReader, type CallState, isObject, type ToolCall } from './callReader.js'

export class BareJsonReader implements CallReader {
  private readonly characters: string[] = []
  private isBegun = false
  private fresh = ''
  private blank = '' // at the end, so far

  constructor(private readonly tool: string) {}

  get text(): string {
    return this.characters.join('')
  }

  get name(): string | null {
    return this.isBegun ? this.tool : null
  }

  push(character: string): CallState {
    this.characters.push(character)
    if (character.trim() === '') {
      if (this.isBegun) this.blank += character
      return 'open'
    }
    if (!this.isBegun && character !== '{') return 'broken'
    this.isBegun = true
    this.fresh += this.blank + character
    this.blank = ''
    return 'open'
  }

  takeArguments(): string {
    const { fresh } = this
    this.fresh = ''
    return fresh
  }

  call(): ToolCall | null {
    const json = this.text.trim() || '{}'
    try {
      return isObject(JSON.parse(json)) ? { name: this.tool, arguments: json } : null
    } catch {
      return null
    }
  }
}
