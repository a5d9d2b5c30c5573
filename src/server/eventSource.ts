// A server-sent event stream over an async iterator of messages. Pull-driven: nothing is produced while the client does
// not read, and a client that reads nothing for too long is cut off. While the next message takes its time, comments
// keep the connection alive. When the client goes, the iterator is returned, which cancels the work behind it.

export interface ServerSentEvent {
  readonly event?: string
  readonly data: string
}

export interface EventSourceOptions {
  /** Turns an error after the headers into a last message. */
  readonly onError: (error: unknown) => ServerSentEvent | null
  /** Cancels the work at once; returning the iterator alone would wait for its next message. */
  readonly cancel: () => void
  readonly keepAliveMs?: number
  readonly readerTimeoutMs?: number
}

export function eventSource(messages: AsyncIterator<ServerSentEvent>, options: EventSourceOptions): Response {
  const { keepAliveMs = 10_000, readerTimeoutMs = 60_000 } = options
  const encoder = new TextEncoder()
  let pending: Promise<IteratorResult<ServerSentEvent>> | null = null
  let readerTimer: NodeJS.Timeout | undefined
  const leave = async () => {
    clearTimeout(readerTimer)
    options.cancel()
    await messages.return?.()
  }
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(readerTimer)
        pending ??= messages.next()
        let keepAlive: NodeJS.Timeout | undefined
        const quiet = new Promise<'quiet'>(resolve => {
          keepAlive = setTimeout(() => resolve('quiet'), keepAliveMs)
        })
        try {
          const result = await Promise.race([pending, quiet])
          if (result === 'quiet') controller.enqueue(encoder.encode(': keep-alive\n\n'))
          else {
            pending = null
            if (result.done) {
              controller.close()
              return
            }
            controller.enqueue(encoder.encode(eventText(result.value)))
          }
          readerTimer = setTimeout(() => {
            void leave()
            controller.error(new Error(`the client read nothing for ${readerTimeoutMs} ms`))
          }, readerTimeoutMs)
          readerTimer.unref()
        } catch (error) {
          const last = options.onError(error)
          if (last !== null) controller.enqueue(encoder.encode(eventText(last)))
          controller.close()
        } finally {
          clearTimeout(keepAlive)
        }
      },
      async cancel() {
        await leave()
      },
    },
    { highWaterMark: 1 },
  )
  return new Response(stream, {
    headers: {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
    },
  })
}

/** Data never holds a line break: it is JSON, or a word. */
function eventText({ event, data }: ServerSentEvent): string {
  return event === undefined ? `data: ${data}\n\n` : `event: ${event}\ndata: ${data}\n\n`
}

/** How long an error may still become an ordinary response before the headers of a stream go out. */
const HEADER_PATIENCE_MS = 3_000

/**
 * Streams `messages`, but waits for the first one, so that what is wrong with a request gets a status of its own. A long
 * prompt does not hold back the headers for ever: after a while they go out, and comments follow.
 */
export async function startEventSource(
  messages: AsyncGenerator<ServerSentEvent>,
  options: EventSourceOptions,
): Promise<Response> {
  const first = messages.next()
  let timer: NodeJS.Timeout | undefined
  const patience = new Promise<void>(resolve => {
    timer = setTimeout(resolve, HEADER_PATIENCE_MS)
  })
  try {
    await Promise.race([first, patience])
  } finally {
    clearTimeout(timer)
  }
  let begun = false
  const next = () => {
    if (begun) return messages.next()
    begun = true
    return first
  }
  return eventSource({ next, return: () => messages.return(undefined) }, options)
}
