// A server-sent event stream over a generator of messages. Pull-driven: nothing is produced while the client does not
// read, and a client that reads nothing for too long is cut off. While the next message takes its time, comments keep
// the connection alive. When the client goes, the work behind the messages is cancelled.
import { yieldToEventLoop } from '../../base/yieldToEventLoop.js'

export interface ServerSentEvent {
  readonly event?: string
  /** Without a line break. What may be long comes in pieces. */
  readonly data: string | Iterable<string>
}

/** Turns an error after the headers into a last message; null: the client has left. */
export type ErrorEvent = (error: unknown) => ServerSentEvent | null

export interface StreamLimits {
  readonly keepAliveMs?: number
  readonly readerTimeoutMs?: number
}

export interface EventSourceOptions extends StreamLimits {
  /** Lines of JSON alone, in place of events. */
  readonly asLines?: boolean
  readonly onError: ErrorEvent
  /** Ends the stream; its reason is the error that the client is told. */
  readonly signal: AbortSignal
  /** Cancels the work at once; returning the generator alone would wait for its next message. */
  readonly cancel: () => void
  /** Called when the last message was read, or the stream ended otherwise. */
  readonly end: () => void
  /** Drops the connection of a client that does not read. */
  readonly disconnect: () => void
  /** Is given a function that sends a comment at once, where the stream waits for its next message. */
  readonly onComment?: (sendComment: () => void) => void
}

/** How long an error may still become an ordinary response before the headers of a stream go out. */
const HEADER_PATIENCE_MS = 3_000
const PIECE = 2 ** 15 // characters

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

export const LINE_STREAM_HEADERS = { ...EVENT_STREAM_HEADERS, 'content-type': 'application/x-ndjson' }

function eventBytes(
  messages: AsyncGenerator<ServerSentEvent>,
  first: Promise<IteratorResult<ServerSentEvent>>,
  options: EventSourceOptions,
): ReadableStream<Uint8Array> {
  const { keepAliveMs = 10_000, readerTimeoutMs = 60_000, signal, asLines = false } = options
  const encoder = new TextEncoder()
  let pending: Promise<IteratorResult<ServerSentEvent>> | null = first
  let unsent: Iterator<string> | null = null // pieces of a message that was begun
  let readerTimer: NodeJS.Timeout | undefined
  let isCancelled = false
  let hurry = () => {}
  options.onComment?.(() => hurry())
  const nextPiece = async (): Promise<string | null> => {
    if (unsent !== null) {
      await yieldToEventLoop()
      const { done, value } = unsent.next()
      if (!done) return value
      unsent = null
    }
    pending ??= messages.next()
    const result = await within(pending, keepAliveMs, now => {
      hurry = now
    })
    hurry = () => {}
    if (result === 'late') return asLines ? ' ' : ': keep-alive\n\n' // a blank before a line is part of no value
    pending = null
    if (result.done) return null
    unsent = eventPieces(result.value, asLines)
    return unsent.next().value
  }
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(readerTimer)
        try {
          const piece = await nextPiece()
          if (isCancelled) return
          if (piece === null) {
            signal.throwIfAborted()
            controller.close()
            options.end()
            return
          }
          controller.enqueue(encoder.encode(piece))
          readerTimer = setTimeout(() => {
            options.cancel()
            options.disconnect()
          }, readerTimeoutMs)
          readerTimer.unref()
        } catch (error) {
          if (isCancelled) return // nobody is there to be told
          const last = options.onError(error)
          if (last !== null) controller.enqueue(encoder.encode(eventText(last, asLines)))
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

/** `onWait` is given a function that ends the waiting at once. */
async function within<T>(
  result: Promise<T>,
  milliseconds: number,
  onWait: (hurry: () => void) => void = () => {},
): Promise<T | 'late'> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<'late'>(resolve => {
    timer = setTimeout(() => resolve('late'), milliseconds)
    onWait(() => resolve('late'))
  })
  try {
    return await Promise.race([result, late])
  } finally {
    clearTimeout(timer)
  }
}

export function eventText(event: ServerSentEvent, asLine = false): string {
  return [...eventPieces(event, asLine)].join('')
}

/** Data never holds a line break: it is JSON, or a word. */
function* eventPieces({ event, data }: ServerSentEvent, asLine: boolean): Generator<string> {
  let text = asLine ? '' : event === undefined ? 'data: ' : `event: ${event}\ndata: `
  for (const piece of typeof data === 'string' ? [data] : data) {
    if (text.length > PIECE) {
      yield text
      text = ''
    }
    text += piece
  }
  yield asLine ? `${text}\n` : `${text}\n\n`
}
