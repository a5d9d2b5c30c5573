// POST /api/pull: downloads a model as ollama does, and reports its progress in lines. A client
// that leaves stops the download that it began; what was downloaded is kept, and the next pull
// resumes it.
import type { Context } from 'hono'
import { messageOf } from '../../../base/errors.js'
import { ApiError } from '../apiError.js'
import { eventSource, LINE_STREAM_HEADERS, type ServerSentEvent } from '../eventSource.js'
import type { HubDesk } from '../hub/modelAdmin.js'
import type { Pull } from '../hub/pulls.js'
import type { Env } from '../middleware.js'
import type { PullRequest } from './schemas.js'

const PROGRESS_INTERVAL_MS = 500

export async function pull(c: Context<Env<PullRequest>>): Promise<Response> {
  const { server, request } = c.var
  const { stopping, hubDesk, streamLimits } = server
  const name = request.model || request.name
  if (!name) throw new ApiError('invalid_request', 'model: want a name', { param: 'model' })
  const isOwn = hubDesk.pulls.get(name)?.state !== 'running'
  hubDesk.pull(name)
  const left = new AbortController()
  const leave = () => {
    left.abort(new DOMException('the client left', 'AbortError'))
    if (isOwn) hubDesk.pulls.stop(name)
  }
  if (request.stream === false) {
    const { signal } = c.req.raw
    signal.addEventListener('abort', leave, { once: true })
    if (signal.aborted) leave()
    const end = await hubDesk.pulls.ended(name)
    return c.json(outcome(end), end?.state === 'done' ? 200 : 500)
  }
  const signal = AbortSignal.any([left.signal, stopping])
  const lines = await eventSource(progressLines(hubDesk, name, signal), {
    asLines: true,
    onError: error => ({ data: JSON.stringify({ error: messageOf(error) }) }),
    signal,
    cancel: leave,
    end: () => {},
    disconnect: () => c.env?.outgoing?.destroy(),
    ...streamLimits,
  })
  return c.body(lines, 200, LINE_STREAM_HEADERS)
}

async function* progressLines(desk: HubDesk, name: string, signal: AbortSignal): AsyncGenerator<ServerSentEvent> {
  const line = (body: object): ServerSentEvent => ({ data: JSON.stringify(body) })
  yield line({ status: 'pulling manifest' })
  const ended = desk.pulls.ended(name)
  while (!signal.aborted) {
    const end = await Promise.race([
      ended,
      new Promise<null>(resolve => setTimeout(resolve, PROGRESS_INTERVAL_MS, null)),
    ])
    if (end !== null) return yield line(outcome(end))
    const progress = desk.pulls.get(name)?.progress
    if (progress) {
      const { phase, loaded: completed, total } = progress
      yield line({ status: phase === 'download' ? `pulling ${name}` : phase, digest: name, total, completed })
    }
  }
}

/** The last line. */
function outcome(pull: Pull | null): object {
  if (pull?.state === 'done') return { status: 'success' }
  return { error: pull?.problem ?? 'the pull was stopped; what was downloaded is kept' }
}
