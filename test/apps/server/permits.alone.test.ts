// No permit, body memory, lease, timer or listener of a request is left, however it ends, and the
// next one is answered. The model waits or fails at a named position, so that nothing depends on
// how long anything takes.
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { Metrics } from '#moeflux/apps/server/metrics.js'
import type { LoadHooks, ModelHub } from '#moeflux/apps/server/serve.js'
import { type ServeOptions, serve } from '#moeflux/apps/server/serve.js'
import { scriptedModel } from '../../support/models/scriptedModel.js'
import { rawHead } from './rawRequest.js'
import { type Held, withLedger } from './requestLedger.js'
import { halfOpenSocket } from './scriptedServer.js'
import { postJson } from './sse.js'

const KEEP_MS = 987_654_321 // of idle models
const TIMEOUT_MS = 123_456_789 // of requests
const BODY_ARRIVAL_MS = 2_000
const PACE_MS = [1_000, 3_000] // of a stream's headers and comments: each timer of these fires once and is never cancelled
const MiB = 2 ** 20
const padding = 'x'.repeat(100_000) // bodies of less than 64 KiB are not counted

const messages = [{ role: 'user', content: 'Hi there' }]
const STREAMING: Record<string, object> = {
  '/v1/chat/completions': { messages, max_tokens: 9 },
  '/v1/completions': { prompt: 'Hi there', max_tokens: 9 },
  '/v1/responses': { input: 'Hi there', max_output_tokens: 9 },
  '/v1/messages': { messages, max_tokens: 9 },
  '/api/chat': { messages, options: { num_predict: 9 } },
  '/api/generate': { prompt: 'Hi there', options: { num_predict: 9 } },
}
const WHOLE: Record<string, object> = {
  '/v1/embeddings': { input: 'Hi there' },
  '/v1/messages/count_tokens': { messages },
  '/api/embed': { input: 'Hi there' },
  '/api/embeddings': { prompt: 'Hi there' },
}
const BODIES: Record<string, object> = { ...STREAMING, ...WHOLE }
const PATHS = Object.keys(BODIES)

/**
 * Where a request waits or fails: while its model is loaded, before it gets the lease, at its
 * prompt, after tokens.
 */
type Position = 'load' | 'lease' | 'prompt' | 'answer'

/** A server with the models `first` and `other`, and what its requests hold. */
async function startServer(options: ServeOptions = {}) {
  const actions = new Map<Position, (signal?: AbortSignal) => Promise<void>>()
  const offer = (id: string) => ({
    id,
    async open(hooks?: LoadHooks) {
      if (id === 'first') await actions.get('load')?.(hooks?.signal)
      let steps = 0 // of the answer
      const { model } = await scriptedModel({
        script: tokens => (tokens.length % 100) + 1,
        async onStep(runs, signal) {
          const isAnswer = runs.every(({ sequence, tokens }) => tokens.length === 1 && sequence.length > 0)
          steps = isAnswer ? steps + 1 : 0
          if (steps === 0) await actions.get('prompt')?.(signal)
          if (steps >= 3) await actions.get('answer')?.(signal)
        },
      })
      return model
    },
  })
  const models = [offer('first'), offer('other')]
  const warnings: string[] = []
  const onWarning = (line: string) => warnings.push(line)
  const limits = { keepLoadedMs: KEEP_MS, requestTimeoutMs: TIMEOUT_MS, onWarning, ...options }
  const ledger = await withLedger(
    [KEEP_MS, ...PACE_MS],
    () => serve(models, { port: 0, ...limits }),
    async () => actions.get('lease')?.(),
  )
  const { server } = ledger
  onTestFinished(() => server.stop(0))

  const ask = (path: string, more: object = {}, init: RequestInit = {}) => {
    const body = JSON.stringify({ model: 'first', stream: false, ...BODIES[path], padding, ...more })
    return fetch(server.url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body, ...init })
  }
  const answers = async (path: string, model: string) => {
    const response = await ask(path, { model })
    expect([response.status, (await response.text()).length > 1]).toEqual([200, true])
  }
  await answers('/v1/completions', 'other')
  const start = await ledger.held()
  expect(start).toMatchObject({ permits: 0, bodyBytes: 0, leases: 0, timers: [] })
  const holds = (part: Partial<Held>) => expect.poll(ledger.held, { interval: 5 }).toMatchObject(part)
  return {
    ...server,
    warnings,
    ask,
    answers,
    holds,
    fire: ledger.fire,
    /** Requests wait at the position. */
    hold(position: Position) {
      let reach = () => {}
      const reached = new Promise<void>(resolve => {
        reach = resolve
      })
      let release = () => {}
      const released = new Promise<void>(resolve => {
        release = resolve
      })
      actions.set(position, async signal => {
        reach()
        const aborted = new Promise<void>(resolve => signal?.addEventListener('abort', () => resolve(), { once: true }))
        await Promise.race([released, aborted])
        signal?.throwIfAborted()
      })
      return { reached, release }
    },
    fail(position: Position) {
      actions.set(position, () => Promise.reject(new Error(`failed at ${position}`)))
    },
    /** Nothing is left of the requests so far, and the next one is answered. */
    async isUnused(path = '/v1/chat/completions') {
      await holds(start)
      actions.clear()
      await answers(path, 'first')
      await holds(start)
    },
    isUnusedWhenStopped: () => holds(start),
  }
}

type TestServer = Awaited<ReturnType<typeof startServer>>

/** What ends a request that waits; it has been sent with the signal of `client`. */
const ENDINGS: Record<string, (server: TestServer, client: AbortController) => void | Promise<void>> = {
  'its client leaves': (_server, client) => client.abort(),
  'it takes too long': server => server.fire(TIMEOUT_MS),
  'the server stops': server => server.stop(0),
}

interface Case {
  readonly position: Position
  readonly streams: boolean
  readonly isLoaded: boolean
}
const CASES: Case[] = [
  { position: 'load', streams: false, isLoaded: false },
  { position: 'load', streams: true, isLoaded: false },
  { position: 'prompt', streams: false, isLoaded: true },
  { position: 'prompt', streams: true, isLoaded: true },
  { position: 'prompt', streams: true, isLoaded: false },
  { position: 'answer', streams: false, isLoaded: true },
  { position: 'answer', streams: true, isLoaded: true },
  { position: 'answer', streams: true, isLoaded: false },
]
const named = CASES.map(each => {
  const { position, streams, isLoaded } = each
  return [`${position}, ${streams ? 'streamed' : 'whole'}, model ${isLoaded ? 'loaded' : 'not loaded'}`, each] as const
})

describe.each(Object.keys(STREAMING))('%s', path => {
  describe.each(named)('at %s', (_name, { position, streams, isLoaded }) => {
    test.each(Object.keys(ENDINGS))('leaves nothing when %s', async ending => {
      const server = await startServer()
      if (isLoaded) await server.answers('/v1/embeddings', 'first')
      const { reached, release } = server.hold(position)
      const client = new AbortController()
      const answer = server.ask(path, { stream: streams }, { signal: client.signal })
      const read = answer.then(response => response.text()).catch(() => {})
      await reached
      if (streams && position === 'answer') expect((await answer).status).toBe(200)
      await server.holds({ permits: 1, bodyBytes: expect.any(Number), leases: position === 'load' ? 0 : 1 })
      await ENDINGS[ending](server, client)
      await read
      if (ending === 'the server stops') return await server.isUnusedWhenStopped()
      await server.holds({ permits: 0, bodyBytes: 0, leases: 0 }) // also while its model is still loading
      release()
      await server.isUnused(path)
    })

    test('leaves nothing when it fails', async () => {
      const server = await startServer()
      if (isLoaded) await server.answers('/v1/embeddings', 'first')
      server.fail(position)
      const response = await server.ask(path, { stream: streams })
      const reportsLoading = !isLoaded && !path.startsWith('/api/')
      expect(response.status).toBe(streams && (position === 'answer' || reportsLoading) ? 200 : 500)
      expect(await response.text()).toContain('internal error')
      expect(server.warnings).toEqual([expect.stringContaining(`failed at ${position}`)])
      await server.isUnused(path)
    })
  })

  test.each([false, true])('leaves nothing when the handler throws, streamed: %s', async stream => {
    const server = await startServer()
    await server.answers(path, 'first')
    vi.spyOn(Metrics.prototype, 'watch').mockImplementationOnce(() => {
      throw new Error('not watched')
    })
    expect((await server.ask(path, { stream })).status).toBe(500)
    await server.isUnused(path)
  })

  test.each([false, true])('leaves nothing when the answer has been read, streamed: %s', async stream => {
    const server = await startServer()
    for (let i = 0; i < 2; i++) expect((await (await server.ask(path, { stream })).text()).length).toBeGreaterThan(1)
    await server.isUnused(path)
  })
})

describe.each(PATHS)('%s', path => {
  test('holds a permit, its body and a lease to its end', async () => {
    const server = await startServer()
    if (path === '/v1/messages/count_tokens') return await server.isUnused(path) // computes nothing
    const { reached, release } = server.hold('prompt')
    const answer = server.ask(path)
    await reached
    const { length } = JSON.stringify({ model: 'first', stream: false, ...BODIES[path], padding })
    await server.holds({ permits: 1, bodyBytes: length, leases: 1 })
    release()
    expect((await answer).status).toBe(200)
    await server.isUnused(path)
  })

  test('leaves nothing of requests that are refused', async () => {
    const server = await startServer({ maxBodyBytes: 200_000 })
    const wrong: Record<string, [number, object, RequestInit?]> = {
      'no JSON': [400, {}, { body: `{"padding": "${padding}", ` }],
      'no UTF-8': [400, {}, { body: Buffer.alloc(100_000, 0xff) }],
      'wrong types': [400, { messages: 5, prompt: 5, input: 5 }],
      'another content type': [415, {}, { headers: { 'content-type': 'text/plain' } }],
      'too large': [413, { padding: padding.repeat(3) }],
      'no name': [400, { model: '' }],
      'unknown model': [404, { model: 'nobody' }],
    }
    for (const [what, [status, more, init]] of Object.entries(wrong)) {
      const response = await server.ask(path, more, init)
      expect([what, response.status, (await response.text()).length > 1]).toEqual([what, status, true])
      await server.holds({ permits: 0, bodyBytes: 0, leases: 0, timers: [] })
    }
    await server.isUnused(path)
  })
})

describe('a request that arrives slowly', () => {
  const head = (length: number) =>
    rawHead('POST', '/v1/chat/completions', { 'Content-Type': 'application/json', 'Content-Length': String(length) })
  const body = JSON.stringify({ model: 'first', ...STREAMING['/v1/chat/completions'], padding })

  /** Sends requests up to a position in their body; the last of them is the one that ends. */
  const POSITIONS: Record<string, { readonly heads: readonly string[]; readonly held: Partial<Held> }> = {
    'before its body': { heads: [head(body.length)], held: { permits: 1, bodyBytes: body.length } },
    'in the middle of its body': {
      heads: [head(body.length) + body.slice(0, 70_000)],
      held: { permits: 1, bodyBytes: body.length },
    },
    'while it waits for body memory': {
      heads: [head(32 * MiB), head(32 * MiB), head(32 * MiB)],
      held: { permits: 3, bodyBytes: 64 * MiB },
    },
  }

  describe.each(Object.keys(POSITIONS))('%s', position => {
    const { heads, held } = POSITIONS[position]
    const send = async (server: TestServer) => {
      const clients = heads.map(() => halfOpenSocket(server))
      clients.forEach(({ socket }, i) => void socket.write(heads[i]))
      await server.holds(held)
      return clients
    }

    test('leaves nothing when its client leaves', async () => {
      const server = await startServer()
      const clients = await send(server)
      clients.at(-1)!.socket.destroy()
      await server.holds({ permits: clients.length - 1 })
      for (const { socket } of clients) socket.destroy()
      await server.isUnused()
    })

    test('leaves nothing when it takes too long', async () => {
      const server = await startServer()
      const clients = await send(server)
      for (const _ of clients) server.fire(TIMEOUT_MS)
      for (const { ended, text, socket } of clients) {
        await expect.poll(text).toMatch(/^HTTP\/1\.1 408 /)
        socket.end()
        await ended
      }
      await server.isUnused()
    })

    test('leaves nothing when the server stops', async () => {
      const server = await startServer()
      const clients = await send(server)
      await server.stop(0)
      for (const { ended } of clients) await ended
      await server.isUnusedWhenStopped()
    })

    test('leaves nothing when its permit was returned before its client leaves', async () => {
      const server = await startServer()
      const clients = await send(server)
      for (const _ of clients) server.fire(BODY_ARRIVAL_MS)
      await server.holds({ ...held, permits: 0 })
      for (const { socket } of clients) socket.destroy()
      await server.isUnused()
    })
  })

  test('is refused after its body when no permit is left by then', async () => {
    const server = await startServer({ parallel: 1, maxQueue: 0 })
    const slow = halfOpenSocket(server)
    slow.socket.write(head(body.length) + body.slice(0, 70_000))
    await server.holds({ permits: 1 })
    server.fire(BODY_ARRIVAL_MS)
    await server.holds({ permits: 0, bodyBytes: body.length })
    const { reached, release } = server.hold('prompt')
    const other = server.ask('/v1/messages')
    await reached
    slow.socket.write(body.slice(70_000))
    await slow.ended
    expect(slow.text()).toMatch(/^HTTP\/1\.1 429 /)
    await server.holds({ permits: 1 })
    release()
    expect((await other).status).toBe(200)
    await server.isUnused()
  })

  test('is answered after its body when a permit is left by then', async () => {
    const server = await startServer({ parallel: 1, maxQueue: 0 })
    const slow = halfOpenSocket(server)
    slow.socket.write(head(body.length) + body.slice(0, 70_000))
    await server.holds({ permits: 1 })
    server.fire(BODY_ARRIVAL_MS)
    await server.holds({ permits: 0 })
    slow.socket.write(body.slice(70_000))
    await slow.ended
    expect(slow.text()).toMatch(/^HTTP\/1\.1 200 /)
    await server.isUnused()
  })

  test('is refused when its body grows beyond the limit', async () => {
    const server = await startServer({ maxBodyBytes: 150_000 })
    const headers = { 'Content-Type': 'application/json', 'Transfer-Encoding': 'chunked' }
    const { socket, text, ended } = halfOpenSocket(server)
    socket.write(
      `${rawHead('POST', '/v1/chat/completions', headers)}${(200_000).toString(16)}\r\n${body.padEnd(200_000)}\r\n0\r\n\r\n`,
    )
    await ended
    expect(text()).toMatch(/^HTTP\/1\.1 413 /)
    await server.isUnused()
  })
})

describe('a model that is loaded when its request has ended', () => {
  test.each([
    ['its client leaves', true],
    ['its client leaves', false],
    ['it takes too long', true],
    ['it takes too long', false],
  ])('is not leased: %s, streamed: %s', async (ending, stream) => {
    const server = await startServer()
    const { reached, release } = server.hold('lease')
    const client = new AbortController()
    const answer = server.ask('/v1/chat/completions', { stream }, { signal: client.signal })
    const read = answer.then(response => response.text()).catch(() => {})
    await reached
    await ENDINGS[ending](server, client)
    await server.holds({ permits: 0, leases: 1 })
    release()
    await read
    await server.isUnused()
  })
})

test('leaves nothing when something is thrown that is no Error, which hono passes on', async () => {
  const server = await startServer()
  await server.answers('/v1/completions', 'first')
  vi.spyOn(Metrics.prototype, 'watch').mockImplementationOnce(() => {
    throw 'not watched'
  })
  expect((await server.ask('/v1/chat/completions')).status).toBe(500)
  await server.isUnused()
})

describe('permits', () => {
  test('of an answer with more choices than there are permits, which is alone', async () => {
    const server = await startServer({ parallel: 1, maxQueue: 1 })
    const { reached, release } = server.hold('prompt')
    const answer = server.ask('/v1/chat/completions', { n: 4, stream: true })
    await reached
    await server.holds({ permits: 4 })
    expect((await server.ask('/v1/messages')).status).toBe(429)
    release()
    expect(await (await answer).text()).toContain('[DONE]')
    await server.isUnused()
  })

  test('are not asked for by requests that come while the server stops', async () => {
    const server = await startServer({ parallel: 1, maxQueue: 0 })
    const { reached, release } = server.hold('prompt')
    const running = server.ask('/v1/chat/completions')
    await reached
    const connected = new Promise<Socket>(resolve => {
      const onSocket = (message: unknown) => resolve((message as { socket: Socket }).socket)
      subscribe('net.server.socket', onSocket)
      onTestFinished(() => void unsubscribe('net.server.socket', onSocket))
    })
    const late = halfOpenSocket(server)
    const head = rawHead('POST', '/v1/messages', { 'Content-Type': 'application/json', 'Content-Length': '2' })
    late.socket.write(head.slice(0, -2)) // a connection without a begun request would be closed
    const socket = await connected
    await expect.poll(() => socket.bytesRead).toBe(head.length - 2)
    const stopped = server.stop(10_000)
    await expect.poll(() => fetch(server.url).catch(() => 'closed')).toBe('closed')
    late.socket.write('\r\n{}')
    await late.ended
    expect(late.text()).toMatch(/^HTTP\/1\.1 503 /) // without the check before it, 429: no permit is left
    release()
    expect((await running).status).toBe(200)
    await stopped
    await server.isUnusedWhenStopped()
  })

  test('are not taken by a model that is unloaded on request', async () => {
    const server = await startServer()
    const { reached, release } = server.hold('load')
    for (const path of ['/api/chat', '/api/generate']) {
      const nothing = { messages: [], prompt: '', keep_alive: 0 }
      expect(await (await server.ask(path, nothing)).json()).toMatchObject({ done_reason: 'unload' })
    }
    expect(await Promise.race([reached.then(() => 'loaded'), Promise.resolve('not loaded')])).toBe('not loaded')
    release()
    await server.isUnused()
  })
})

describe('requests that compute nothing', () => {
  test('return the memory of their bodies before they are answered', async () => {
    const pulls: (() => void)[] = []
    const hub = {
      mayPull: true,
      about: async () => null,
      known: async () => [],
      machine: async () => ({ freeMemory: 1, totalMemory: 1, freeDisk: null }),
      forecast: async () => ({ name: 'x', bytes: 1, fit: null, downloadBytes: 1 }),
      pull: async (name: string, { signal, onProgress }: LoadHooks) => {
        onProgress({ phase: 'download', loaded: 1, total: 2 }) // each line of it notices whether the client has left
        await new Promise<void>((resolve, reject) => {
          pulls.push(resolve)
          signal.addEventListener('abort', () => reject(signal.reason))
        })
        throw new Error(`${name} is nowhere`)
      },
    } as unknown as ModelHub
    const server = await startServer({ hub })
    const post = (path: string, body: object) => postJson(server.url + path, { padding, ...body })
    for (const path of ['/hub/load', '/hub/forecast', '/hub/stop', '/api/show']) {
      expect([path, (await post(path, { model: 'first' })).status]).toEqual([path, 200])
      expect([path, (await post(path, { model: 5 })).status]).toEqual([path, 400])
    }
    const client = new AbortController()
    const init = { method: 'POST', body: JSON.stringify({ model: 'a', padding }), signal: client.signal }
    const streamed = fetch(`${server.url}/api/pull`, { ...init, headers: { 'content-type': 'application/json' } }).then(
      response => response.text(),
    )
    streamed.catch(() => {})
    await expect.poll(() => pulls.length).toBe(1)
    const whole = post('/api/pull', { model: 'a', stream: false })
    await server.holds({ permits: 0, bodyBytes: 0 })
    client.abort()
    expect((await whole).status).toBe(500)
    expect((await post('/hub/pull', { model: 'b' })).status).toBe(200)
    await server.holds({ permits: 0, bodyBytes: 0, leases: 0 })
    await server.isUnused()
  })
})
