// The model on the server that this page came from. Answers by its OpenAI API, frames by /engine/events. A lost
// connection to the frames is taken up again by itself; a failed answer is told with what may help.
import { decodeFrame, type EngineFrame } from '#moeflux/apps/browser/page.js'
import type { PageStorage } from '../state/pageStorage.js'
import { type ChatEngine, type ChatEvent, type ChatRequest, EngineFailure, type EngineShape } from './chatEngine.js'

const RECONNECT_MS = 1500
const HEALTH_MS = 4000 // after which a server that says nothing counts as gone

/** The key that the server asks for, where it does; kept until the tab is closed. */
export class ServerKey {
  private static readonly name = 'moeflux.key'

  constructor(private readonly storage: PageStorage) {}

  get(): string | null {
    return this.storage.getItem(ServerKey.name)
  }

  set(key: string): void {
    this.storage.setItem(ServerKey.name, key)
  }

  get headers(): Record<string, string> {
    const key = this.get()
    return key === null ? {} : { authorization: `Bearer ${key}` }
  }
}

/** Who wants to know what becomes of the server. */
export interface ServerListener {
  /** It may be gone. */
  onLost(): void
  /** The model was not in memory when it was looked at, and is now. */
  onLoaded(): void
}

export class ServerEngine implements ChatEngine {
  readonly place = 'server'

  private constructor(
    readonly shape: EngineShape,
    private readonly key: ServerKey,
    private readonly listener: ServerListener,
  ) {}

  /** The engine of one of the server's models. */
  static async connect(key: ServerKey, model: string, listener: ServerListener): Promise<ServerEngine> {
    const response = await ask(`engine?model=${encodeURIComponent(model)}`, { headers: key.headers })
    if (!response.ok) throw await failureOf(response)
    const body = await response.json()
    const shape: EngineShape = {
      model,
      backend: String(body.backend ?? ''),
      description: String(body.description ?? 'not in memory'),
      isLoaded: body.state === 'loaded',
      layers: body.layers ?? 0,
      experts: body.experts ?? 0,
      expertsPerToken: body.experts_per_token ?? 0,
      layerNumbers: body.layer_numbers ?? [],
      layerKinds: body.layer_kinds ?? [],
      contextLength: body.context_length ?? 0,
    }
    return new ServerEngine(shape, key, listener)
  }

  equals({ shape }: ServerEngine): boolean {
    return JSON.stringify(shape) === JSON.stringify(this.shape)
  }

  async *chat(
    { messages, settings, begun, begunThinking }: ChatRequest,
    signal: AbortSignal,
  ): AsyncGenerator<ChatEvent> {
    const asked = performance.now()
    const response = await ask('v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...this.key.headers },
      body: JSON.stringify({
        ...(begun === '' && begunThinking === ''
          ? { messages }
          : {
              messages: [...messages, { role: 'assistant', content: begun, reasoning_content: begunThinking }],
              continue_final_message: true,
            }),
        model: this.shape.model,
        temperature: settings.temperature,
        top_p: settings.topP,
        top_k: settings.topK,
        min_p: settings.minP,
        seed: settings.seed,
        max_tokens: settings.maxTokens,
        chat_template_kwargs: { enable_thinking: begunThinking !== '' || (settings.thinking && begun === '') },
        stream: true,
        stream_options: { include_usage: true },
        return_progress: true,
      }),
      signal,
    }).catch(error => {
      if (!signal.aborted) this.listener.onLost()
      throw error
    })
    if (!response.ok || response.body === null) throw await failureOf(response)
    let { isLoaded } = this.shape
    let first = 0
    let last = 0
    let reason: 'stop' | 'length' | null = null
    try {
      for await (const data of eventData(response.body, true)) {
        if (data === '[DONE]') break
        if (data.startsWith(':')) {
          const share = Number(/^: loading .* (\d+)%/.exec(data)?.[1] ?? 0)
          if (data.startsWith(': loading'))
            yield { type: 'progress', kind: 'loading', done: share, total: 100, cached: 0 }
          continue
        }
        if (!isLoaded) this.listener.onLoaded()
        isLoaded = true
        const chunk = JSON.parse(data)
        if (chunk.error) throw bodyFailure(chunk.error, 0)
        if (chunk.prompt_progress) yield progressOf(chunk.prompt_progress)
        const choice = chunk.choices?.[0]
        const { content, reasoning_content: thinking } = choice?.delta ?? {}
        if (content || thinking) {
          last = performance.now()
          first ||= last
        }
        if (thinking) yield { type: 'thinking', text: thinking }
        if (content) yield { type: 'text', text: content }
        if (choice?.finish_reason) reason = choice.finish_reason === 'length' ? 'length' : 'stop'
        if (chunk.usage) {
          const now = performance.now()
          yield {
            type: 'usage',
            usage: {
              promptTokens: chunk.usage.prompt_tokens,
              cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
              answerTokens: chunk.usage.completion_tokens,
              // By the server's clock, where it tells: what the network adds is not the model's.
              promptSeconds: seconds(chunk.timings?.prompt_ms) ?? ((first || now) - asked) / 1000,
              answerSeconds: seconds(chunk.timings?.predicted_ms) ?? (first ? (last - first) / 1000 : 0),
            },
          }
        }
      }
    } catch (error) {
      if (signal.aborted || error instanceof EngineFailure) throw error
      this.listener.onLost()
      throw new EngineFailure('unreachable', 'The connection to the server broke off in the middle of the answer.')
    }
    if (reason === null) {
      throw new EngineFailure('unreachable', 'The server ended the answer before it was finished.')
    }
    yield { type: 'end', reason }
  }

  watch(onFrame: (frame: EngineFrame) => void, onState: (isLive: boolean) => void): () => void {
    const stop = new AbortController()
    void this.follow(onFrame, onState, stop.signal)
    return () => stop.abort()
  }

  private async follow(
    onFrame: (frame: EngineFrame) => void,
    onState: (isLive: boolean) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const cells = this.shape.layers * this.shape.experts
    while (!signal.aborted) {
      try {
        const response = await ask(`engine/events?model=${encodeURIComponent(this.shape.model)}`, {
          headers: this.key.headers,
          signal,
        })
        if (!response.ok || response.body === null) throw await failureOf(response)
        onState(true)
        for await (const data of eventData(response.body)) onFrame(decodeFrame(data, cells))
      } catch {
        // told by the state; an answer that fails as well says more
      }
      if (signal.aborted) return
      onState(false)
      this.listener.onLost()
      await new Promise(resolve => setTimeout(resolve, RECONNECT_MS))
    }
  }
}

function progressOf({ processed = 0, total = 0, cache = 0 }: Record<string, number>): ChatEvent {
  return { type: 'progress', kind: 'prompt', done: processed - cache, total: total - cache, cached: cache }
}

function seconds(milliseconds: unknown): number | null {
  return typeof milliseconds === 'number' ? milliseconds / 1000 : null
}

/** Asks the server that the page came from. */
export async function ask(path: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(new URL(path, document.baseURI), options)
  } catch (error) {
    if (options.signal?.aborted) throw error
    throw new EngineFailure('unreachable', 'The server does not answer. Is moeflux serve still running?')
  }
}

/** Whether a moeflux server answers at all: one whose model has failed does, a proxy in front of none does not. */
export async function isServerThere(): Promise<boolean> {
  try {
    const response = await fetch(new URL('health', document.baseURI), { signal: AbortSignal.timeout(HEALTH_MS) })
    return response.headers.get('content-type')?.includes('json') === true
  } catch {
    return false
  }
}

export async function failureOf(response: Response): Promise<EngineFailure> {
  const retryAfter = Number(response.headers.get('retry-after')) || null
  const body = await response.json().catch(() => null)
  return bodyFailure(body?.error ?? {}, response.status, retryAfter)
}

function bodyFailure(
  error: { message?: unknown; code?: unknown; type?: unknown },
  status: number,
  retryAfter: number | null = null,
): EngineFailure {
  const message = typeof error.message === 'string' ? error.message : `The server answered with status ${status}.`
  if (status === 401) return new EngineFailure('unauthorized', 'The server asks for an API key.')
  if (error.code === 'context_length_exceeded') return new EngineFailure('contextFull', message)
  if (status === 429) {
    const when = retryAfter === null ? '' : ` It may have room in ${retryAfter} s.`
    return new EngineFailure('busy', `The server is busy: its queue is full.${when}`)
  }
  if (status === 503) return new EngineFailure('stopping', 'The server is shutting down.')
  return new EngineFailure('other', message)
}

/**
 * Server-sent events out of a response's bytes, however they are cut. A comment comes as it is, with its colon in front, to
 * those who want comments: no data begins like that, which is JSON or a word.
 */
export async function* eventData(body: ReadableStream<Uint8Array>, withComments = false): AsyncGenerator<string> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let text = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      text += decoder.decode(value, { stream: true })
      const events = text.split('\n\n')
      text = events.pop() as string
      for (const event of events) {
        const data = event
          .split('\n')
          .filter(line => line.startsWith('data:'))
          .map(line => line.slice(5).replace(/^ /, ''))
        if (data.length > 0) yield data.join('\n')
        else if (withComments && event.startsWith(':')) yield event
      }
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}
