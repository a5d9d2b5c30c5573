// A server is stopped while requests are wherever a request can be: running, waiting, between headers and first token, behind a model that
// loads, half sent, on connections that were there before. Each is answered or told within the grace, and none is left open.
import { Agent, request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { serve } from '#moeflux/apps/server/serve.js'
import { rawHead, rawRequest } from './rawRequest.js'
import { type ScriptedServer, scriptedServer } from './scriptedServer.js'
import { postJson, sentEvents } from './sse.js'

const PATH = '/v1/chat/completions'
let asked = 0
/** Each another prompt: what was evaluated once needs no step. */
const chat = (stream: boolean) => ({
  model: 'slow',
  messages: [{ role: 'user', content: `Question ${asked++}` }],
  stream,
})

/** The status, and how a stream ended: by its last event, or without one. */
async function outcome(url: string, stream: boolean): Promise<string> {
  try {
    const response = await postJson(`${url}${PATH}`, chat(stream))
    if (!stream || response.status !== 200) {
      await response.text()
      return String(response.status)
    }
    const last = (await sentEvents(response)).at(-1)?.data ?? 'nothing'
    return last === '[DONE]' ? 'done' : last.includes('"error"') ? 'told' : 'cut off'
  } catch {
    return 'closed'
  }
}

/** The status, and what becomes of the connection, of a request over one that was kept open. */
function onAgent(agent: Agent, port: number): Promise<string> {
  const body = JSON.stringify(chat(false))
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
  return new Promise(resolve => {
    const sent = httpRequest({ agent, port, host: '127.0.0.1', path: PATH, method: 'POST', headers }, response => {
      response.resume().on('end', () => resolve(`${response.statusCode} ${response.headers.connection}`))
    })
    sent.on('error', () => resolve('closed'))
    sent.end(body)
  })
}

/** One that runs, two that wait for it, and connections of every kind; the model waits until `release`. */
async function crowd(server: ScriptedServer) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  onTestFinished(() => agent.destroy())
  expect(await onAgent(agent, server.port)).toBe('200 keep-alive')
  const release = server.hold()
  const running = outcome(server.url, true)
  await expect.poll(() => server.metric('moeflux_requests_active')).toBe(1)
  const waiting = [outcome(server.url, true), outcome(server.url, false)]
  await expect.poll(() => server.metric('moeflux_requests_waiting')).toBe(2)
  const body = JSON.stringify(chat(false))
  const head = rawHead('POST', PATH, { 'Content-Type': 'application/json', 'Content-Length': String(body.length) })
  const halfSent = rawRequest(server.port, head + body.slice(0, 9))
  const silent = connect(server.port, '127.0.0.1')
  const silentEnded = new Promise(resolve => silent.on('close', resolve).on('error', () => {}))
  return { agent, release, answers: () => Promise.all([running, ...waiting]), halfSent, silent, silentEnded }
}

test('what runs and waits when a server is stopped is answered, and what comes while it drains; then it is refused', async () => {
  const server = await scriptedServer({ parallel: 1, drainMs: 3_000 })
  const { agent, release, answers, halfSent, silent, silentEnded } = await crowd(server)
  const stopped = server.stop(60_000)
  // Balancers do not know yet: they are told, and what they send is taken. Who keeps a connection is told to look for another.
  const ready = await fetch(`${server.url}/ready`)
  expect([ready.status, ready.headers.get('connection')]).toEqual([503, 'close'])
  const taken = onAgent(agent, server.port)
  await expect.poll(() => server.metric('moeflux_requests_waiting')).toBe(3)
  const isThere = () =>
    fetch(`${server.url}/ready`).then(
      () => true,
      () => false,
    )
  await expect.poll(isThere).toBe(false)
  let text = ''
  silent.on('data', chunk => {
    text += chunk
  })
  silent.write(rawHead('POST', PATH, { 'Content-Type': 'application/json', 'Content-Length': '2' }) + '{}')
  await silentEnded
  expect(text).toMatch(/^($|HTTP\/1.1 503 )/)
  release()
  expect(await answers()).toEqual(['done', 'done', '200'])
  expect(await taken).toBe('200 close')
  await stopped
  expect([503, null]).toContain((await halfSent).status)
  expect(await onAgent(agent, server.port)).toBe('closed')
  await server.close()
})

test('what does not end in time is told so, before its answer began and after', async () => {
  const server = await scriptedServer({ parallel: 1 })
  const { answers, silentEnded, halfSent } = await crowd(server)
  // The headers of a stream go out after a while, so that a status cannot tell any more.
  const late = await postJson(`${server.url}${PATH}`, chat(true))
  expect(late.status).toBe(200)
  const events = sentEvents(late)
  await server.stop(100)
  expect(await answers()).toEqual(['told', 'told', '503'])
  expect((await events).at(-1)?.data).toContain('"error"')
  await silentEnded
  expect([503, null]).toContain((await halfSent).status)
  await server.close()
})

test('who waits for a model that is being loaded when the server is stopped is told so', async () => {
  let loads = 0
  // For ever, but for the signal.
  const open = (hooks?: { readonly signal: AbortSignal }) => {
    loads++
    return new Promise<never>((_, reject) => {
      hooks?.signal.addEventListener('abort', () => reject(hooks.signal.reason), { once: true })
    })
  }
  const server = await serve(
    [
      { id: 'slow', open },
      { id: 'other', open },
    ],
    { port: 0 },
  )
  const both = [outcome(server.url, true), outcome(server.url, false)]
  await expect.poll(() => loads).toBe(1)
  await server.stop(100)
  expect(await Promise.all(both)).toEqual(['told', '503'])
})
