// A call in a block whose first character says in which of several ways it is written.
import type { CallReader, CallState, ToolCall } from '../answer/callReader.js'

export class BlockReader implements CallReader {
  private blank = ''
  private reader: CallReader | null = null

  constructor(private readonly readers: Readonly<Record<string, () => CallReader>>) {}

  get text(): string {
    return this.blank + (this.reader?.text ?? '')
  }

  get name(): string | null {
    return this.reader?.name ?? null
  }

  push(character: string): CallState {
    if (this.reader === null) {
      if (character.trim() === '' || !Object.hasOwn(this.readers, character)) {
        this.blank += character
        return character.trim() === '' ? 'open' : 'broken'
      }
      this.reader = this.readers[character]()
    }
    return this.reader.push(character)
  }

  takeArguments(): string {
    return this.reader?.takeArguments() ?? ''
  }

  call(): ToolCall | null {
    return this.reader?.call() ?? null
  }
}
