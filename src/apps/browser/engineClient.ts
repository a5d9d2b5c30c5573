// The page's side of the engine worker: calls with answers, streams of events, frames. A worker that dies fails all that
// is under way with DeviceLostError.
import type { Progress } from '../../backends/backend.js'
import { ClosedError, DeviceLostError } from '../../base/errors.js'
import type { SessionEvent } from '../../chat/events.js'
import type { EngineFrame } from '../../engine/engineFrame.js'
import { type CallName, type Calls, EVENT_WINDOW, type FromEngine, type ToEngine, unpackError } from './protocol.js'

export interface EngineListeners {
  readonly onProgress?: (progress: Progress) => void
  readonly onNotice?: (line: string) => void
}

interface Pending {
  settle(result: { readonly value: unknown } | { readonly error: unknown }): void
  event?(event: SessionEvent): void
  promptProgress?(done: number, total: number, cached: number): void
}

export interface StreamRequest {
  readonly session: number | null
  readonly how: 'chat' | 'complete' | 'generate'
  readonly options: object
  readonly onPromptProgress?: (done: number, total: number, cached: number) => void
}

/** What is used of a Worker, in types that need no page. */
export interface EngineWorker {
  addEventListener(type: 'message', listener: (event: { readonly data: unknown }) => void): void
  addEventListener(
    type: 'error',
    listener: (event: { readonly message?: string; preventDefault(): void }) => void,
  ): void
  postMessage(message: unknown): void
  terminate(): void
}

export class EngineClient {
  private readonly pending = new Map<number, Pending>()
  private readonly watchers = new Set<(frame: EngineFrame) => void>()
  private nextId = 1
  private gone: Error | null = null

  /** `address`: where the worker was looked for. */
  constructor(
    private readonly worker: EngineWorker,
    address: string,
    private readonly listeners: EngineListeners,
  ) {
    worker.addEventListener('message', ({ data }) => this.hear(data as FromEngine))
    worker.addEventListener('error', event => {
      event.preventDefault()
      const advice = `it cannot be loaded from ${address}; option 'workers' names its folder`
      this.lose(new DeviceLostError('browser', `the engine worker failed: ${event.message || advice}`))
    })
  }

  async call<N extends CallName>(
    name: N,
    args: Parameters<Calls[N]>,
    signal?: AbortSignal,
  ): Promise<ReturnType<Calls[N]>> {
    signal?.throwIfAborted()
    if (this.gone) throw this.gone
    const id = this.nextId++
    const abort = () => this.send({ kind: 'cancel', id })
    signal?.addEventListener('abort', abort, { once: true })
    try {
      return await new Promise<ReturnType<Calls[N]>>((resolve, reject) => {
        const settle: Pending['settle'] = result =>
          'error' in result ? reject(result.error) : resolve(result.value as ReturnType<Calls[N]>)
        this.pending.set(id, { settle })
        this.send({ kind: 'call', id, name, args })
      })
    } catch (error) {
      throw signal?.aborted ? signal.reason : error
    } finally {
      signal?.removeEventListener('abort', abort)
    }
  }

  /** Events of one answer. The engine runs ahead of the reader by a bounded number. */
  async *stream(request: StreamRequest, signal: AbortSignal): AsyncGenerator<SessionEvent, void, undefined> {
    signal.throwIfAborted()
    if (this.gone) throw this.gone
    const id = this.nextId++
    const events: SessionEvent[] = []
    let end: { readonly value: unknown } | { readonly error: unknown } | null = null
    let wake = () => {}
    const { session, how, options, onPromptProgress } = request
    this.pending.set(id, {
      event(event) {
        events.push(event)
        wake()
      },
      promptProgress: onPromptProgress,
      settle(result) {
        end = result
        wake()
      },
    })
    const abort = () => {
      this.send({ kind: 'cancel', id })
      wake()
    }
    signal.addEventListener('abort', abort, { once: true })
    this.send({ kind: 'stream', id, session, how, options, promptProgress: onPromptProgress !== undefined })
    let taken = 0
    try {
      for (;;) {
        signal.throwIfAborted()
        const event = events.shift()
        if (event !== undefined) {
          if (++taken === EVENT_WINDOW / 4) {
            this.send({ kind: 'taken', id, count: taken })
            taken = 0
          }
          yield event
        } else if (end !== null) {
          const { error = null } = end as { error?: unknown }
          if (error !== null) throw error
          return
        } else {
          await new Promise<void>(resolve => {
            wake = resolve
          })
        }
      }
    } finally {
      signal.removeEventListener('abort', abort)
      if (end === null && !signal.aborted) this.send({ kind: 'cancel', id })
    }
  }

  watch(listener: (frame: EngineFrame) => void): () => void {
    const own = (frame: EngineFrame) => listener(frame)
    this.watchers.add(own)
    this.send({ kind: 'watch', on: true })
    return () => {
      if (this.watchers.delete(own) && this.watchers.size === 0) this.send({ kind: 'watch', on: false })
    }
  }

  /** Ends the worker and all its own. */
  terminate(): void {
    this.worker.terminate()
    this.lose(new ClosedError('model'))
  }

  private hear(message: FromEngine): void {
    if (message.kind === 'progress') this.listeners.onProgress?.(message.progress)
    else if (message.kind === 'notice') this.listeners.onNotice?.(message.line)
    else if (message.kind === 'frame') for (const watcher of [...this.watchers]) watcher(message.frame)
    else {
      const pending = this.pending.get(message.id)
      if (message.kind === 'event') pending?.event?.(message.event)
      else if (message.kind === 'promptProgress') pending?.promptProgress?.(message.done, message.total, message.cached)
      else {
        this.pending.delete(message.id)
        pending?.settle(message.kind === 'error' ? { error: unpackError(message.error) } : { value: message.value })
      }
    }
  }

  private send(message: ToEngine): void {
    if (!this.gone) this.worker.postMessage(message)
  }

  private lose(reason: Error): void {
    if (this.gone) return
    this.gone = reason
    for (const pending of this.pending.values()) pending.settle({ error: reason })
    this.pending.clear()
  }
}
