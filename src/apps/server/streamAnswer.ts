// An answer that is streamed: as events, or as lines of JSON. The stream ends its request when its
// last message is read.
import type { Context } from 'hono'
import { reportingFaults } from './apiError.js'
import {
  type ErrorEvent,
  EVENT_STREAM_HEADERS,
  eventSource,
  LINE_STREAM_HEADERS,
  type ServerSentEvent,
} from './eventSource.js'
import type { Env } from './middleware.js'

type Messages = AsyncGenerator<ServerSentEvent>

export async function eventAnswer<T>(c: Context<Env<T>>, events: Messages, onError: ErrorEvent): Promise<Response> {
  return c.body(await streamOf(c, events, onError, false), 200, EVENT_STREAM_HEADERS)
}

export async function lineAnswer<T>(c: Context<Env<T>>, lines: Messages, onError: ErrorEvent): Promise<Response> {
  return c.body(await streamOf(c, lines, onError, true), 200, LINE_STREAM_HEADERS)
}

async function streamOf<T>(
  c: Context<Env<T>>,
  messages: Messages,
  onError: ErrorEvent,
  asLines: boolean,
): Promise<ReadableStream<Uint8Array>> {
  const { server, active } = c.var
  const stream = await eventSource(messages, {
    asLines,
    onError: reportingFaults(server.onError, onError),
    signal: active.signal,
    cancel: () => active.cancel(),
    end: () => active.end(),
    disconnect: () => c.env.outgoing?.destroy(),
    onComment: sendComment => {
      active.sendComment = sendComment
    },
    ...server.streamLimits,
  })
  active.handOver() // not before: an error of the first message is an ordinary response
  return stream
}
