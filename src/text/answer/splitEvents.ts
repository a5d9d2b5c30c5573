// The events of a splitter that nobody has taken yet. Neighbours that say more of the same are one.
import type { ToolCall } from './callReader.js'
import type { CallProgressEvent, SplitEvent } from './splitter.js'

export class SplitEvents {
  private events: SplitEvent[] = []

  say(type: 'text' | 'thinking', text: string): void {
    if (text === '') return
    const last = this.events.at(-1)
    if (last?.type === type) this.events[this.events.length - 1] = { type, text: last.text + text }
    else this.events.push({ type, text })
  }

  call(call: ToolCall): void {
    this.events.push({ type: 'toolCall', ...call })
  }

  tell(event: CallProgressEvent): void {
    const last = this.events.at(-1)
    if (event.type === 'toolCallDelta' && last?.type === event.type) {
      this.events[this.events.length - 1] = { ...event, arguments: last.arguments + event.arguments }
    } else this.events.push(event)
  }

  take(): SplitEvent[] {
    const { events } = this
    this.events = []
    return events
  }
}
