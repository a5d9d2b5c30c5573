// Tool calls as a session tells them: each has an id from its beginning on, and is told while it is written where it is one
// of a tool that was offered. What only looks like a call of something else is told when it is whole. Whatever happened on
// the way, a whole call comes after its beginning and all of its arguments.
import type { CallProgressEvent, SplitEvent } from '../text/answer/splitter.js'
import type { ToolCallEvent } from './events.js'

type CallEvent = CallProgressEvent | Extract<SplitEvent, { type: 'toolCall' }>

export class CallEvents {
  private open: { readonly id: string; readonly isTold: boolean } | null = null

  constructor(private readonly offered: ReadonlySet<string>) {}

  *take(event: CallEvent): Generator<ToolCallEvent> {
    const { open } = this
    switch (event.type) {
      case 'toolCallStart': {
        const id = newCallId()
        const isTold = this.offered.has(event.name)
        this.open = { id, isTold }
        if (isTold) yield { type: 'toolCallStart', id, name: event.name }
        break
      }
      case 'toolCallDelta':
        if (open?.isTold) yield { ...event, id: open.id }
        break
      case 'toolCallDropped':
        if (open?.isTold) yield { type: 'toolCallDropped', id: open.id }
        this.open = null
        break
      case 'toolCall': {
        const { name, arguments: text } = event
        const id = open?.id ?? newCallId()
        if (!open?.isTold) {
          yield { type: 'toolCallStart', id, name }
          yield { type: 'toolCallDelta', id, arguments: text }
        }
        yield { type: 'toolCall', id, name, arguments: text }
        this.open = null
      }
    }
  }
}

function newCallId(): string {
  return `call_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`
}
