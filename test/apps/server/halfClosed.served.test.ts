// Clients that close their side of the connection after the request: those that listen get their answer, those that are
// gone are noticed, and what is sent to find out is no part of any answer.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { rawHead } from './rawRequest.js'
import { halfOpenSocket, type ScriptedServer, scriptedServer } from './scriptedServer.js'

let server: ScriptedServer
beforeAll(async () => {
  server = await scriptedServer()
})
afterAll(() => server.close())
afterEach(() => idle())

const idle = () => expect.poll(() => server.metric('moeflux_requests_active')).toBe(0)
const chat = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 3 }
const post = (body: object, connection = 'close', path = '/v1/chat/completions') => {
  const json = JSON.stringify(body)
  const headers = { 'Content-Type': 'application/json', 'Content-Length': String(json.length), Connection: connection }
  return rawHead('POST', path, headers) + json
}

/** Sends a request, closes this side, and reads to the end. */
async function halfClosed(request: string, meanwhile: () => Promise<void> = async () => {}): Promise<string> {
  const { socket, text, ended } = halfOpenSocket(server)
  socket.end(request)
  await meanwhile()
  await ended
  socket.destroy()
  return text()
}
const bodyOf = (reply: string) => reply.slice(reply.indexOf('\r\n\r\n') + 4)
const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

describe('a client that closes its side', () => {
  test.each(['close', 'keep-alive'])('gets its answer, and nothing else: %s', async connection => {
    const reply = await halfClosed(post(chat, connection))
    expect(reply).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(JSON.parse(bodyOf(reply))).toMatchObject({ object: 'chat.completion' })
  })

  test('gets it also when it takes a while', async () => {
    const goOn = server.hold()
    const reply = await halfClosed(post(chat), async () => {
      await pause(700) // some letters are sent meanwhile
      goOn()
    })
    expect(reply).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(JSON.parse(bodyOf(reply))).toMatchObject({ object: 'chat.completion' })
  })

  test('gets a stream to its end, before which comments may come', async () => {
    const goOn = server.hold()
    const reply = await halfClosed(post({ ...chat, stream: true }), async () => {
      await pause(300)
      goOn()
    })
    expect(reply).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(reply).toContain('data: [DONE]\n\n')
  })

  test('gets what is wrong with its request, pages, and answers one after the other', async () => {
    expect(await halfClosed(post({ ...chat, n: -1 }))).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n.*"param":"n"/s)
    expect(await halfClosed(rawHead('GET', '/health'))).toMatch(/^HTTP\/1\.1 200 OK\r\n.*"ok"/s)
    const two = await halfClosed(post(chat, 'keep-alive') + post({ ...chat, n: -1 }))
    expect(two.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400'])
  })

  test('in the middle of its request gets no answer to it', async () => {
    const reply = await halfClosed(post(chat).slice(0, -5))
    expect(reply === '' || reply.startsWith('HTTP/1.1 400')).toBe(true)
  })
})

describe('a client that is gone', () => {
  const active = () => server.metric('moeflux_requests_active')

  test.each([
    ['an answer', {}],
    ['a stream', { stream: true }],
  ])('is noticed at once while it waits for %s', async (what, more) => {
    const goOn = server.hold()
    for (const isHalfClosedFirst of [false, true]) {
      const content = `${what} ${isHalfClosedFirst}` // nothing of it is in the cache
      const body = { messages: [{ role: 'user', content }], ...more }
      const { socket } = halfOpenSocket(server)
      if (isHalfClosedFirst) socket.end(post(body))
      else socket.write(post(body))
      await expect.poll(active, { interval: 5 }).toBe(1)
      socket.destroy()
      await expect.poll(active, { interval: 5 }).toBe(0)
    }
    goOn()
  })

  test('is noticed between the events of a stream that has begun', async () => {
    let goOn = () => {}
    const waiting = await scriptedServer({
      keepAliveMs: 60_000,
      script: tokens => {
        goOn = waiting.hold() // after the first token
        return tokens.length % 100
      },
    })
    const { socket, text } = halfOpenSocket(waiting)
    socket.write(post({ ...chat, max_tokens: 50, stream: true }))
    await expect.poll(text).toContain('data: {')
    socket.destroy()
    await expect.poll(() => waiting.metric('moeflux_requests_active')).toBe(0)
    goOn()
    await waiting.close()
  })
})
