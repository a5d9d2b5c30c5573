// Large bodies and long texts: who is let in, how much memory they take, and that everybody else is served meanwhile.
import type { Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { healthDuring } from './healthWatch.js'
import { rawHead, rawRequest } from './rawRequest.js'
import { halfOpenSocket, type ScriptedServer, scriptedServer } from './scriptedServer.js'
import { type ServerProcess, startServer } from './serverProcess.js'
import { postJson } from './sse.js'

const MiB = 2 ** 20
const chat = (content: string) => ({ messages: [{ role: 'user', content }], max_tokens: 2 })
const head = (length: number, path = '/v1/chat/completions') =>
  rawHead('POST', path, { 'Content-Type': 'application/json', 'Content-Length': String(length) })

describe('a house that is full', () => {
  let server: ScriptedServer
  beforeAll(async () => {
    server = await scriptedServer({ parallel: 1, maxQueue: 1 })
  })
  afterAll(() => server.close())
  const ask = (body: object) => postJson(`${server.url}/v1/chat/completions`, body)
  const active = () => server.metric('moeflux_requests_active')

  test('turns requests away before their bodies are sent', async () => {
    const goOn = server.hold()
    const inside = [ask(chat('one')), ask(chat('two'))]
    await expect.poll(active).toBe(2)
    const { status, text } = await rawRequest(server.port, head(20 * MiB), { limitMs: 500 })
    expect(status).toBe(429)
    expect(text).toMatch(/^retry-after: \d+\r$/im)
    goOn()
    for (const answer of await Promise.all(inside)) expect(answer.status).toBe(200)
    await expect.poll(active).toBe(0)
  })

  test('tells so even a client that reads nothing before all of its body is sent', async () => {
    const goOn = server.hold()
    const inside = [ask(chat('one')), ask(chat('two'))]
    await expect.poll(active).toBe(2)
    const more = (socket: Socket) => {
      socket.pause()
      socket.write(Buffer.alloc(20 * MiB, 'x'), error => error ?? socket.resume())
    }
    const { status, milliseconds } = await rawRequest(server.port, head(20 * MiB), { more, limitMs: 10_000 })
    expect(status).toBe(429)
    expect(milliseconds).toBeLessThan(5_000) // the connection was ended
    goOn()
    await Promise.all(inside)
    await expect.poll(active).toBe(0)
  })

  test('turns away what asks for more places than are left, and takes them when they are', async () => {
    const goOn = server.hold()
    const first = ask(chat('three'))
    await expect.poll(active).toBe(1)
    expect((await ask({ ...chat('four'), n: 2 })).status).toBe(429)
    goOn()
    await first
    expect((await ask({ ...chat('four'), n: 2 })).status).toBe(200)
    expect((await ask({ ...chat('five'), n: 5 })).status).toBe(200) // more than there are, when nobody else is there
  })

  test('is not full of requests that take their time to arrive', async () => {
    const body = JSON.stringify(chat('slow'))
    const slow = [halfOpenSocket(server), halfOpenSocket(server)]
    for (const { socket } of slow) socket.write(head(body.length) + body.slice(0, 20))
    await expect.poll(active).toBe(2)
    expect((await ask(chat('quick'))).status).toBe(429)
    await expect.poll(active).toBe(0)
    expect((await ask(chat('quick'))).status).toBe(200)
    for (const { socket } of slow) socket.write(body.slice(20))
    for (const { ended, text } of slow) {
      await ended
      expect(text()).toMatch(/^HTTP\/1\.1 200 /)
    }
  })

  test('reads a body whose length nobody told, and gives the room back', async () => {
    const body = JSON.stringify({ ...chat('x'), padding: 'x'.repeat(MiB) })
    const chunk = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
    const headers = { 'Content-Type': 'application/json', 'Transfer-Encoding': 'chunked' }
    const { status } = await rawRequest(server.port, rawHead('POST', '/v1/chat/completions', headers) + chunk)
    expect(status).toBe(200)
    await expect.poll(() => server.metric('moeflux_body_bytes')).toBe(0)
  })
})

test('who is turned away and never sends its body does not keep its connection', async () => {
  const server = await scriptedServer({ parallel: 1, maxQueue: 0, receiveTimeoutMs: 1_000 })
  const goOn = server.hold()
  const inside = postJson(`${server.url}/v1/chat/completions`, chat('one'))
  await expect.poll(() => server.metric('moeflux_requests_active')).toBe(1)
  const { status, milliseconds } = await rawRequest(server.port, head(20 * MiB), { limitMs: 10_000 })
  expect(status).toBe(429)
  expect(milliseconds).toBeLessThan(9_000) // the server has closed it
  goOn()
  await inside
  await server.close()
})

describe('a server with much to read', () => {
  let server: ServerProcess
  beforeAll(async () => {
    server = await startServer()
  })
  afterAll(() => server?.stop())
  afterEach(() => server.idle())

  const words = (bytes: number) => {
    const text = Array.from({ length: 4096 }, (_, i) => ((i * 2654435761) % 2 ** 32).toString(36)).join(' ')
    return text.repeat(Math.ceil(bytes / text.length)).slice(0, bytes)
  }

  test.each([
    ['a prompt of 5 MB', '/v1/chat/completions', () => chat(words(5e6)), 400],
    ['a raw prompt of 5 MB', '/v1/completions', () => ({ prompt: words(5e6) }), 400],
    ['a count of 5 MB', '/v1/messages/count_tokens', () => chat(words(5e6)), 200],
    ['40,000 combining marks', '/v1/messages/count_tokens', () => chat('\u0301\u0323'.repeat(20_000)), 200],
    ['a word of a megabyte', '/v1/messages/count_tokens', () => chat('a'.repeat(1e6)), 200],
    ['millions of token ids', '/v1/completions', () => ({ prompt: Array(1e6).fill(440) }), 400],
    ['millions of values', '/v1/chat/completions', () => ({ ...chat('x'), zz: Array(2e6).fill([]) }), 400],
    ['a million messages', '/v1/chat/completions', () => ({ messages: Array(1e6).fill(0) }), 400],
    ['thousands of cache breakpoints', '/v1/messages', () => ({ ...chat(''), messages: [breakpoints()] }), 400],
    ['a huge name for the model', '/v1/chat/completions', () => ({ ...chat('x'), model: 'x'.repeat(5e6) }), 400],
    ['huge variables', '/v1/chat/completions', () => ({ ...chat('x'), chat_template_kwargs: { x: words(5e6) } }), 200],
  ])('answers others beside %s', async (_what, path, body, status) => {
    const text = JSON.stringify(body())
    const { result, answers, silences } = await healthDuring(server.url, () => postJson(server.url + path, text))
    expect([result.status, (await result.text()).length < 5_000]).toEqual([status, true])
    expect(answers).toBeGreaterThan(1)
    expect(silences).toEqual([])
  })

  function breakpoints() {
    const part = { type: 'text', text: 'A little dog. '.repeat(4), cache_control: { type: 'ephemeral' } }
    return { role: 'user', content: Array(4000).fill(part) }
  }

  test('says of a prompt that cannot fit how long it is at least, in either API', async () => {
    const text = words(1e6)
    const openai = await (await postJson(`${server.url}/v1/chat/completions`, chat(text))).json()
    expect(openai.error).toMatchObject({ code: 'context_length_exceeded', param: 'messages' })
    expect(openai.error.message).toMatch(/maximum context length is 4096 tokens.*the prompt has at least \d{5,} tokens/)
    const anthropic = await (await postJson(`${server.url}/v1/messages`, chat(text))).json()
    expect(anthropic.error.message).toMatch(/^prompt is too long: at least \d{5,} tokens > 4096 maximum$/)
  })

  test('stops counting when the client leaves', async () => {
    const body = JSON.stringify(chat(words(8e6)))
    const { socket } = halfOpenSocket(server)
    socket.write(head(body.length, '/v1/messages/count_tokens') + body)
    await expect.poll(() => server.metric('moeflux_requests_active'), { interval: 10 }).toBe(1)
    socket.destroy()
    await server.idle()
  })

  test('reads many large bodies within bounds, and each gets a status of its own', async () => {
    await (await postJson(`${server.url}/v1/chat/completions`, chat('x'))).json()
    const before = await server.metric('process_resident_memory_bytes')
    const body = Buffer.from(JSON.stringify(chat(words(10 * MiB))))
    const headers = { 'content-type': 'application/json' }
    let peak = 0
    const send = async () => {
      const response = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers, body })
      peak = Math.max(peak, await server.metric('process_resident_memory_bytes'))
      const { error } = await response.json()
      return response.status === 400
        ? 'refused'
        : `${response.status} ${error.code} ${response.headers.get('retry-after')}`
    }
    const { result, silences } = await healthDuring(server.url, () => Promise.all(Array.from({ length: 12 }, send)))
    expect(result.filter(outcome => outcome !== 'refused' && outcome !== '503 body_room_full 5')).toEqual([])
    expect(result.filter(outcome => outcome === 'refused').length).toBeGreaterThan(3)
    expect(silences).toEqual([])
    expect(peak - before).toBeLessThan(600 * MiB)
    expect(await server.metric('moeflux_body_bytes')).toBe(0)
  })
})
