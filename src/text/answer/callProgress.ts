// Tells of a tool call while it is being written: that it begins, and what its arguments grow by. Arguments that were told are
// those of the call that follows, to the letter. Where none follows, or another one, that is told too.
import type { CallReader, ToolCall } from './callReader.js'
import type { CallProgressEvent } from './splitter.js'

export class CallProgress {
  private name: string | null = null // of the call that was told of
  private told = ''

  constructor(private readonly emit: (event: CallProgressEvent) => void) {}

  /** What a reader has found out since the last time. */
  follow(reader: CallReader): void {
    const { name } = reader
    if (name === null) return
    this.begin(name)
    this.grow(reader.takeArguments())
  }

  finish(call: ToolCall): void {
    if (this.name !== call.name || !call.arguments.startsWith(this.told)) this.drop()
    this.begin(call.name)
    this.grow(call.arguments.slice(this.told.length))
    this.forget()
  }

  /** No call after all. */
  drop(): void {
    if (this.name !== null) this.emit({ type: 'toolCallDropped' })
    this.forget()
  }

  private begin(name: string): void {
    if (this.name !== null) return
    this.name = name
    this.emit({ type: 'toolCallStart', name })
  }

  private grow(text: string): void {
    if (text === '') return
    this.told += text
    this.emit({ type: 'toolCallDelta', arguments: text })
  }

  private forget(): void {
    this.name = null
    this.told = ''
  }
}
