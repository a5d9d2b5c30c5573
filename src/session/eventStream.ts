// The stream of events that a session hands out. Leaving the loop early, or `return()` while a token is being computed,
// cancels the work at once; a generator alone would finish the token, or the whole prompt, first.
import type { Answer, SessionEvent, Usage } from './events.js'

export class EventStream implements AsyncIterableIterator<SessionEvent> {
  private readonly cancel = new AbortController()
  private readonly events: AsyncGenerator<SessionEvent, void, undefined>

  /** `produce` gets a signal that is aborted when the stream is left or `signal` is. */
  constructor(produce: (signal: AbortSignal) => AsyncGenerator<SessionEvent, void, undefined>, signal?: AbortSignal) {
    const forward = () => this.cancel.abort(signal?.reason)
    if (signal?.aborted) forward()
    signal?.addEventListener('abort', forward, { once: true })
    this.events = withCleanup(produce(this.cancel.signal), () => signal?.removeEventListener('abort', forward))
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  next(): Promise<IteratorResult<SessionEvent, void>> {
    return this.events.next()
  }

  async return(): Promise<IteratorResult<SessionEvent, void>> {
    this.cancel.abort(new DOMException('the reader left', 'AbortError'))
    return await this.events.return()
  }

  async throw(error?: unknown): Promise<IteratorResult<SessionEvent, void>> {
    await this.return()
    throw error
  }

  /** Reads to the end and puts the pieces together. */
  async answer(): Promise<Answer> {
    let text = ''
    let thinking = ''
    const toolCalls: { id: string; name: string; arguments: string }[] = []
    let usage: Usage | null = null
    for await (const event of this) {
      if (event.type === 'text') text += event.text
      else if (event.type === 'thinking') thinking += event.text
      else if (event.type === 'toolCall') {
        toolCalls.push({ id: event.id, name: event.name, arguments: event.arguments })
      } else if (event.type === 'usage') {
        const { type: _, ...numbers } = event
        usage = numbers
      } else if (event.type === 'end') {
        const { reason, stopSequence } = event
        return { text, thinking, toolCalls, usage: usage as Usage, reason, stopSequence }
      }
    }
    throw new Error('the stream was already read')
  }
}

async function* withCleanup<T>(
  events: AsyncGenerator<T, void, undefined>,
  cleanUp: () => void,
): AsyncGenerator<T, void, undefined> {
  try {
    yield* events
  } finally {
    cleanUp()
  }
}
