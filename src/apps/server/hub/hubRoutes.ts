// POST /hub/load, /hub/pull, /hub/stop and /hub/forecast: each takes the name of a model and
// reports what it did.
import type { Context } from 'hono'
import { z } from 'zod'
import type { Env } from '../middleware.js'
import { unknownModel } from '../serverContext.js'

export const hubRequest = z.object({ model: z.string().min(1).max(1024) })

type HubContext = Context<Env<z.infer<typeof hubRequest>>>

/** Begins to load a model that is offered. */
export function hubLoad(c: HubContext): Response {
  const { server, request } = c.var
  if (!server.shelf.has(request.model)) throw unknownModel(request.model)
  server.hubDesk.load(request.model)
  return c.json({ status: 'loading' })
}

/** Begins to download a model. */
export function hubPull(c: HubContext): Response {
  const { server, request } = c.var
  return c.json({ status: server.hubDesk.pull(request.model).state })
}

/** Stops the download or the loading of a model. */
export function hubStop(c: HubContext): Response {
  const { server, request } = c.var
  return c.json({ stopped: server.hubDesk.stop(request.model) })
}

/** What a download would take, and how the model would run here. */
export async function hubForecast(c: HubContext): Promise<Response> {
  const { server, request } = c.var
  return c.json(await server.hubDesk.forecast(request.model, server.stopping))
}
