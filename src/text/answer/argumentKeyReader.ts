// A call that is written as its bare name, then `<arg_key>` and `<arg_value>` for each argument.
import type { CallReader, CallState, ToolCall } from './callReader.js'
import type { ParameterType } from './splitter.js'
import { TaggedArguments } from './taggedArguments.js'

const NO_NAME = /[{}[\]"'`>]/ // what follows the opening of a call that is none: JSON, a quote, another tag

export class ArgumentKeyReader implements CallReader {
  private readonly characters: string[] = []
  private head = ''
  private arguments: TaggedArguments | null = null
  private told = '' // of the arguments

  constructor(
    private readonly close: string,
    private readonly parameterType: ParameterType | undefined,
  ) {}

  get text(): string {
    return this.characters.join('')
  }

  /** A word alone after the opening may still be anything. */
  get name(): string | null {
    return this.arguments?.hasBegun ? this.head : null
  }

  push(character: string): CallState {
    this.characters.push(character)
    if (this.arguments === null) {
      const isBlank = character.trim() === ''
      if (isBlank && this.head === '') return 'open'
      if (!isBlank && character !== '<') {
        this.head += character
        return NO_NAME.test(character) ? 'broken' : 'open'
      }
      if (this.head === '') return 'broken'
      this.arguments = this.startArguments()
    }
    this.arguments.push(character)
    return this.arguments.state
  }

  takeArguments(): string {
    const fresh = this.arguments?.take() ?? ''
    this.told += fresh
    return fresh
  }

  call(): ToolCall | null {
    if (this.arguments?.finish() !== true) return null
    const { told } = this
    return { name: this.head, arguments: told + this.takeArguments() }
  }

  private startArguments(): TaggedArguments {
    const tags = {
      open: '<arg_key>',
      afterKey: ['</arg_key>', '<arg_value>'],
      close: '</arg_value>',
      end: [this.close],
      valueOnOwnLines: false,
    }
    return new TaggedArguments(tags, this.head, this.parameterType)
  }
}
