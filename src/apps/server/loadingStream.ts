// The answer to a request for a stream whose model is not in memory: the stream begins at once and says in comments that the
// model is being loaded, and how far it is. What the endpoint then streams goes on in it; an error is its last event.
import type { Context } from 'hono'
import { EVENT_STREAM_HEADERS, type EventSourceOptions, eventText } from './eventSource.js'

const PACE_MS = 1_000

export function loadingStream(
  c: Context,
  stay: { cancel(): void; end(): void },
  loading: () => string,
  answer: () => Promise<Response>,
  onError: EventSourceOptions['onError'],
): Response {
  const utf8 = new TextEncoder()
  const comment = () => utf8.encode(`: ${loading()}\n\n`)
  const coming = answer()
  coming.catch(() => {})
  let body: ReadableStreamDefaultReader<Uint8Array> | null = null
  let isGone = false
  const stream = new ReadableStream<Uint8Array>(
    {
      start: controller => controller.enqueue(comment()),
      async pull(controller) {
        try {
          if (body === null) {
            const response = await orLater(coming)
            if (response === null) return controller.enqueue(comment())
            body = (response.body as ReadableStream<Uint8Array>).getReader()
          }
          const { done, value } = await body.read()
          if (!done) return controller.enqueue(value)
        } catch (error) {
          if (isGone) return
          const last = onError(error)
          if (last !== null) controller.enqueue(utf8.encode(eventText(last)))
        }
        controller.close()
        stay.end() // also when the endpoint began a stream whose first event failed
      },
      async cancel(reason) {
        isGone = true
        stay.cancel()
        await body?.cancel(reason)
      },
    },
    { highWaterMark: 1 },
  )
  return c.body(stream, 200, EVENT_STREAM_HEADERS)
}

async function orLater<T>(work: Promise<T>): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined
  const later = new Promise<null>(resolve => {
    timer = setTimeout(() => resolve(null), PACE_MS)
  })
  try {
    return await Promise.race([work, later])
  } finally {
    clearTimeout(timer)
  }
}
