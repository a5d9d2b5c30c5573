// The engine for someone who looks on: its shape at GET /engine, and what it does as a stream of
// frames at GET /engine/events. A watcher is not a request for an answer: it takes no permit and
// holds back no shutdown. One that reads slowly gets fewer frames that cover more.
import type { Context } from 'hono'
import type { EngineFrame, Model } from '../../index.js'
import { encodeFrame, mergeFrames } from '../../internal.js'
import { ApiError } from './apiError.js'
import { EVENT_STREAM_HEADERS, eventSource, type ServerSentEvent } from './eventSource.js'
import { probeHalfClosed } from './halfClosed.js'
import type { LoadedModel } from './loadedModel.js'
import { type ServerContext, unknownModel } from './serverContext.js'

const MAX_WATCHERS = 32

/** Of one that is not in memory, no more than that. */
export function engineBody({ shelf, modelFiles }: ServerContext, name: string | undefined): object {
  const known = name === undefined ? null : shelf.find(name)
  if (name !== undefined && known === null) throw unknownModel(name)
  if (known !== null && known.loaded === null) {
    const { offer, state } = known
    return { model: offer.id, state, context_length: offer.contextLength }
  }
  const { id: modelId, model } = watched(shelf, name)
  const { config } = model
  return {
    model: modelId,
    state: 'loaded',
    backend: model.backend,
    description: model.backendDescription,
    layers: config.moeLayers.length,
    experts: config.numExperts,
    layer_numbers: config.moeLayers,
    layer_kinds: config.moeLayers.map(layer => config.layerKinds[layer]),
    experts_per_token: model.expertsPerToken,
    context_length: model.contextLength,
    files: modelFiles === null ? null : `models/${modelFiles.entry.path}`,
    stats: model.stats(),
  }
}

/** The model of that name; without one, that which was used last. */
function watched(shelf: ServerContext['shelf'], name: string | undefined): LoadedModel {
  const named = name === undefined ? null : shelf.find(name)?.loaded
  if (name !== undefined && named) return named
  const latest = name === undefined ? shelf.latest : null
  if (latest !== null) return latest.loaded
  const message =
    name === undefined
      ? 'no model is in memory: the first request loads one'
      : `${name} is not in memory: the first request loads it`
  throw new ApiError('overloaded', message, { retryAfterSeconds: 5 })
}

export async function engineEvents(c: Context, server: ServerContext): Promise<Response> {
  const { watchers, stopping } = server
  const { model, unloading } = watched(server.shelf, c.req.query('model'))
  if (watchers.size >= MAX_WATCHERS) {
    throw new ApiError('rate_limit', `${MAX_WATCHERS} are watching the engine, no more may`, { retryAfterSeconds: 10 })
  }
  const watcher = new AbortController()
  const end = () => {
    watchers.delete(watcher)
    watcher.abort()
  }
  watchers.add(watcher)
  const { signal } = watcher
  let comment = () => {}
  const { incoming, outgoing } = c.env ?? {}
  const stopProbing = incoming && outgoing ? probeHalfClosed(incoming, outgoing, () => comment()) : () => {}
  signal.addEventListener('abort', stopProbing, { once: true })
  stopping.addEventListener('abort', end, { once: true, signal })
  unloading.addEventListener('abort', end, { once: true, signal })
  c.req.raw.signal.addEventListener('abort', end, { once: true, signal })
  const events = await eventSource(frameMessages(model, signal), {
    onError: () => null,
    signal,
    cancel: end,
    end,
    disconnect: () => c.env?.outgoing?.destroy(),
    onComment: sendComment => {
      comment = sendComment
    },
    ...server.streamLimits,
  })
  return c.body(events, 200, EVENT_STREAM_HEADERS)
}

async function* frameMessages(model: Model, signal: AbortSignal): AsyncGenerator<ServerSentEvent> {
  let pending: EngineFrame | null = null
  let wake = () => {}
  const stop = model.watch(frame => {
    pending = pending === null ? frame : mergeFrames(pending, frame)
    wake()
  })
  signal.addEventListener('abort', () => wake(), { once: true })
  try {
    while (!signal.aborted) {
      if (pending === null) await new Promise<void>(resolve => (wake = resolve))
      if (pending === null) continue
      const data: string = encodeFrame(pending)
      pending = null
      yield { event: 'frame', data }
    }
  } finally {
    stop()
  }
}
