// A server-sent event stream over a generator of messages. Pull-driven: nothing is produced while the client does not
// read, and a client that reads nothing for too long is cut off. While the next message takes its time, comments keep
// the connection alive. When the client goes, the work behind the messages is cancelled.

export interface ServerSentEvent {
  readonly event?: string
  readonly data: string
}

export interface StreamLimits {
  readonly keepAliveMs?: number
  readonly readerTimeoutMs?: number
}

export interface EventSourceOptions extends StreamLimits {
  /** Turns an error after the headers into a last message. */
  readonly onError: (error: unknown) => ServerSentEvent | null
  /** Ends the stream; its reason is the error that the client is told. */
  readonly signal: AbortSignal
  /** Cancels the work at once; returning the generator alone would wait for its next message. */
  readonly cancel: () => void
  /** Called when the last message was read, or the stream ended otherwise. */
  readonly end: () => void
  /** Drops the connection of a client that does not read. */
  readonly disconnect: () => void
}

/** How long an error may still become an ordinary response before the headers of a stream go out. */
const HEADER_PATIENCE_MS = 3_000

/**
 * Streams `messages`, but waits for the first one, so that what is wrong with a request gets a status of its own. A long
 * prompt does not hold back the headers for ever: after a while they go out, and comments follow.
 */
export async function eventSource(
  messages: AsyncGenerator<ServerSentEvent>,
  options: EventSourceOptions,
): Promise<ReadableStream<Uint8Array>> {
  const { signal } = options
  // A stream that nobody pulls any more must end too.
  signal.addEventListener('abort', () => void messages.return(undefined).catch(() => {}), { once: true })
  const first = messages.next()
  await within(first, HEADER_PATIENCE_MS)
  return eventBytes(messages, first, options)
}

export const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
}

function eventBytes(
  messages: AsyncGenerator<ServerSentEvent>,
  first: Promise<IteratorResult<ServerSentEvent>>,
  options: EventSourceOptions,
): ReadableStream<Uint8Array> {
  const { keepAliveMs = 10_000, readerTimeoutMs = 60_000, signal } = options
  const encoder = new TextEncoder()
  let pending: Promise<IteratorResult<ServerSentEvent>> | null = first
  let readerTimer: NodeJS.Timeout | undefined
  let isCancelled = false
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(readerTimer)
        pending ??= messages.next()
        try {
          const result = await within(pending, keepAliveMs)
          if (isCancelled) return
          if (result === 'late') controller.enqueue(encoder.encode(': keep-alive\n\n'))
          else {
            pending = null
            if (result.done) {
              signal.throwIfAborted()
              controller.close()
              options.end()
              return
            }
            controller.enqueue(encoder.encode(eventText(result.value)))
          }
          readerTimer = setTimeout(() => {
            options.cancel()
            options.disconnect()
          }, readerTimeoutMs)
          readerTimer.unref()
        } catch (error) {
          if (isCancelled) return // nobody is there to be told
          const last = options.onError(error)
          if (last !== null) controller.enqueue(encoder.encode(eventText(last)))
          controller.close()
          options.end()
        }
      },
      async cancel() {
        isCancelled = true
        clearTimeout(readerTimer)
        options.cancel()
        await messages.return(undefined)
      },
    },
    { highWaterMark: 1 },
  )
}

async function within<T>(result: Promise<T>, milliseconds: number): Promise<T | 'late'> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<'late'>(resolve => {
    timer = setTimeout(() => resolve('late'), milliseconds)
  })
  try {
    return await Promise.race([result, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Data never holds a line break: it is JSON, or a word. */
function eventText({ event, data }: ServerSentEvent): string {
  return event === undefined ? `data: ${data}\n\n` : `event: ${event}\ndata: ${data}\n\n`
}
