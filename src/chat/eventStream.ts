// The stream of events that a session hands out. Leaving the loop early, or an abort while a token is being computed,
// cancels the work at once; a generator alone would finish the token, or the whole prompt, first. An abort also ends a
// stream that nobody reads any more, so that what it holds is free.
import { ClosedError } from '../base/errors.js'
import type { Answer, SessionEvent, Usage } from './events.js'

export class EventStream implements AsyncIterableIterator<SessionEvent> {
  private readonly cancel = new AbortController()
  private readonly events: AsyncGenerator<SessionEvent, void, undefined>
  private readonly forget: () => void
  private over = false // the reader has seen the end, or left

  /** `produce` gets a signal that is aborted when the stream is left, or `signal` or the session ends it. */
  constructor(
    produce: (signal: AbortSignal, stream: EventStream) => AsyncGenerator<SessionEvent, void, undefined>,
    signal?: AbortSignal,
  ) {
    this.events = produce(this.cancel.signal, this)
    const forward = () => this.abort(signal?.reason)
    this.forget = () => signal?.removeEventListener('abort', forward)
    signal?.addEventListener('abort', forward, { once: true })
    if (signal?.aborted) forward()
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  async next(): Promise<IteratorResult<SessionEvent, void>> {
    try {
      const result = await this.events.next()
      if (result.done) {
        if (!this.over) this.cancel.signal.throwIfAborted()
        this.finish()
      } else if (result.value.type === 'end') this.over = true
      return result
    } catch (error) {
      this.finish()
      throw error
    }
  }

  async return(): Promise<IteratorResult<SessionEvent, void>> {
    this.finish()
    this.cancel.abort(new DOMException('the reader left', 'AbortError'))
    return await this.events.return()
  }

  async throw(error?: unknown): Promise<IteratorResult<SessionEvent, void>> {
    await this.return()
    throw error
  }

  /** Ends the work; the reader gets `reason` thrown. */
  abort(reason: unknown): void {
    this.cancel.abort(reason)
    this.events.return().catch(() => {}) // where it rejects, the reader's own `next` did too
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
    throw new ClosedError('stream of events')
  }

  private finish(): void {
    this.over = true
    this.forget()
  }
}
