// The answer to a request for a stream whose model is not in memory: the stream begins at once and
// reports in comments how far the model is loaded. Then it passes on the endpoint's stream; an
// error is its last event.
import type { Context } from 'hono'
import type { ActiveRequest } from './activeRequest.js'
import { type ErrorEvent, EVENT_STREAM_HEADERS, eventText } from './eventSource.js'

const PROGRESS_INTERVAL_MS = 1_000

export function loadingStream(
  c: Context,
  active: Pick<ActiveRequest, 'cancel' | 'end'>,
  loading: () => string,
  answer: () => Promise<Response>,
  onError: ErrorEvent,
): Response {
  const utf8 = new TextEncoder()
  const comment = () => utf8.encode(`: ${loading()}\n\n`)
  const answering = answer()
  answering.catch(() => {})
  let body: ReadableStreamDefaultReader<Uint8Array> | null = null
  let isCancelled = false
  const stream = new ReadableStream<Uint8Array>(
    {
      start: controller => controller.enqueue(comment()),
      async pull(controller) {
        try {
          if (body === null) {
            const response = await orLater(answering)
            if (response === null) return controller.enqueue(comment())
            body = (response.body as ReadableStream<Uint8Array>).getReader()
          }
          const { done, value } = await body.read()
          if (!done) return controller.enqueue(value)
        } catch (error) {
          if (isCancelled) return
          const last = onError(error)
          if (last !== null) controller.enqueue(utf8.encode(eventText(last)))
        }
        controller.close()
        active.end() // also when the endpoint began a stream whose first event failed
      },
      async cancel(reason) {
        isCancelled = true
        active.cancel()
        await body?.cancel(reason)
      },
    },
    { highWaterMark: 1 },
  )
  return c.body(stream, 200, EVENT_STREAM_HEADERS)
}

/** The result of `work`, or null if that takes longer than the interval. */
async function orLater<T>(work: Promise<T>): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined
  const later = new Promise<null>(resolve => {
    timer = setTimeout(() => resolve(null), PROGRESS_INTERVAL_MS)
  })
  try {
    return await Promise.race([work, later])
  } finally {
    clearTimeout(timer)
  }
}
