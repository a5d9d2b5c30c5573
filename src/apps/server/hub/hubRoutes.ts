// POST /hub/load, /hub/pull, /hub/stop and /hub/forecast: the name of a model in, what came of it out.
import type { Context } from 'hono'
import { z } from 'zod'
import { readBody } from '../requestBody.js'
import { type ServerContext, unknownModel } from '../serverContext.js'

const hubRequest = z.object({ model: z.string().min(1).max(1024) })

type Act = (server: ServerContext, model: string) => object | Promise<object>

const ACTIONS: Record<string, Act> = {
  load: ({ hubDesk, shelf }, model) => {
    if (!shelf.has(model)) throw unknownModel(model)
    hubDesk.load(model)
    return { status: 'loading' }
  },
  pull: ({ hubDesk }, model) => ({ status: hubDesk.pull(model).state }),
  stop: ({ hubDesk }, model) => ({ stopped: hubDesk.stop(model) }),
  forecast: ({ hubDesk, stopping }, model) => hubDesk.forecast(model, stopping),
}

export function hubRoutes(server: ServerContext): Record<string, (c: Context) => Promise<Response>> {
  const { bodyLimits, bodyRoom, stopping } = server
  return Object.fromEntries(
    Object.entries(ACTIONS).map(([name, act]) => [
      `/hub/${name}`,
      async c => {
        const { request, release } = await readBody(c, hubRequest, bodyLimits, bodyRoom, stopping)
        release()
        return c.json(await act(server, request.model))
      },
    ]),
  )
}
