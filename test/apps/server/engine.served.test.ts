// What the server tells a page beside answers: the engine's shape and life, and the files of the model.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { decodeFrame } from '#moeflux/engine/frameCodec.js'
import type { EngineFrame } from '#moeflux/index.js'
import { demoModelPath } from '#moeflux/index.js'
import { type ServerProcess, startServer } from './serverProcess.js'
import { parseEvents, postJson } from './sse.js'

const KEY = { 'x-api-key': 'secret' }
const chat = { messages: [{ role: 'user', content: 'Tell me a story about a little dog' }], max_tokens: 12 }

let server: ServerProcess
beforeAll(async () => {
  server = await startServer([], { MOEFLUX_API_KEY: 'secret' })
})
afterAll(() => server.stop())

const get = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  fetch(`${server.url}${path}`, { method, headers: { ...KEY, ...headers } })

describe('the engine over HTTP', () => {
  test('tells its shape', async () => {
    const engine = await (await get('/engine')).json()
    expect(engine).toMatchObject({
      model: 'demo',
      backend: 'wasm',
      layers: 8,
      files: 'models/demo/',
      stats: { expertHits: expect.any(Number) },
    })
    expect(engine.layer_kinds).toHaveLength(engine.layers)
    expect(engine.layer_numbers).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
  })

  test('streams frames that add up to the metrics, to several watchers, and cleans up behind them', async () => {
    const { layers, experts, experts_per_token: k } = await (await get('/engine')).json()
    const leave = new AbortController()
    const watch = async () => {
      const response = await fetch(`${server.url}/engine/events`, { headers: KEY, signal: leave.signal })
      expect(response.headers.get('content-type')).toContain('text/event-stream')
      const frames: EngineFrame[] = []
      const reading = (async () => {
        let text = ''
        const decoder = new TextDecoder()
        for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
          text += decoder.decode(piece, { stream: true })
          const end = text.lastIndexOf('\n\n') + 2
          if (end < 2) continue
          frames.push(...parseEvents(text.slice(0, end)).map(({ data }) => decodeFrame(data, layers * experts)))
          text = text.slice(end)
        }
      })().catch(() => {})
      return { frames, reading }
    }
    const before = await server.metric('moeflux_evaluated_tokens_total')
    const [one, two] = await Promise.all([watch(), watch()])
    await (await postJson(`${server.url}/v1/chat/completions`, chat, KEY)).json()
    await expect.poll(() => one.frames.length > 1 && one.frames.at(-1)?.phase).toBe('idle')
    const tokens = (await server.metric('moeflux_evaluated_tokens_total')) - before
    for (const { frames } of [one, two]) {
      const sum = (read: (frame: EngineFrame) => number) => frames.reduce((total, frame) => total + read(frame), 0)
      expect(sum(frame => frame.promptTokens + frame.decodeTokens)).toBe(tokens)
      expect(sum(frame => frame.routed.reduce((a, b) => a + b))).toBe(tokens * k * layers)
      const last = frames.at(-1) as EngineFrame
      expect(last.resident.reduce((a, b) => a + b)).toBe(await server.metric('moeflux_expert_slots_used'))
      expect(last.stats.expertHits).toBe(await server.metric('moeflux_expert_hits_total'))
      expect(last.stats.expertMisses).toBe(await server.metric('moeflux_expert_misses_total'))
    }
    // Watchers are no requests, and none is left behind.
    expect(await server.metric('moeflux_requests_active')).toBe(0)
    leave.abort()
    await Promise.all([one.reading, two.reading])
    for (let i = 0; i < 40; i++) {
      const going = new AbortController()
      await fetch(`${server.url}/engine/events`, { headers: KEY, signal: going.signal })
      going.abort()
      await new Promise(resolve => setTimeout(resolve, 5))
    }
    const again = new AbortController()
    const response = await fetch(`${server.url}/engine/events`, { headers: KEY, signal: again.signal })
    expect(response.status).toBe(200)
    again.abort()
  })

  test('asks for the key', async () => {
    for (const path of ['/engine', '/engine/events', '/models/index.json', '/models/demo/config.json']) {
      expect((await fetch(`${server.url}${path}`)).status).toBe(401)
    }
  })
})

describe('model files over HTTP', () => {
  const config = readFileSync(join(demoModelPath(), 'config.json'))

  test('lists the model, and gives whole files and ranges', async () => {
    const { models } = await (await get('/models/index.json')).json()
    expect(models).toEqual([{ name: 'demo', path: 'demo/', residentBytes: expect.any(Number), expertBytes: 15925248 }])
    const whole = await get('/models/demo/config.json')
    expect(whole.status).toBe(200)
    expect(Buffer.from(await whole.arrayBuffer())).toEqual(config)
    const etag = whole.headers.get('etag') as string
    expect(etag).toBe(`"${createHash('sha256').update(config).digest('hex')}"`)

    const experts = readFileSync(join(demoModelPath(), 'packed_experts/layer_03.bin'))
    const path = '/models/demo/packed_experts/layer_03.bin'
    const part = await get(path, { range: 'bytes=700000-1299999' })
    expect([part.status, part.headers.get('content-range')]).toEqual([206, 'bytes 700000-1299999/1769472'])
    expect(Buffer.from(await part.arrayBuffer()).equals(experts.subarray(700000, 1300000))).toBe(true)
    const tail = await get(path, { range: 'bytes=-10' })
    expect(Buffer.from(await tail.arrayBuffer())).toEqual(experts.subarray(-10))

    expect((await get(path, { range: 'bytes=1769472-' })).status).toBe(416)
    expect((await get('/models/demo/config.json', { 'if-none-match': etag })).status).toBe(304)
    const changed = await get('/models/demo/config.json', { range: 'bytes=0-3', 'if-range': '"other"' })
    expect(changed.status).toBe(200)
    const same = await get('/models/demo/config.json', { range: 'bytes=0-3', 'if-range': etag })
    expect([same.status, (await same.arrayBuffer()).byteLength]).toEqual([206, 4])
    const head = await get(path, {}, 'HEAD')
    expect([head.status, head.headers.get('content-length')]).toEqual([200, '1769472'])
    const manifest = await get('/models/demo/moeflux.json')
    expect((await manifest.json()).format).toBe(1)
  })

  test.each([
    '/models/demo/',
    '/models/demo/README.md',
    '/models/other/config.json',
    '/models/demo/../../package.json',
    '/models/demo/%2e%2e/%2e%2e/package.json',
    '/models/demo/..%2f..%2fpackage.json',
    '/models/demo/packed_experts/../config.json/..',
    '/models/demo//config.json',
    '/models/demo/__proto__',
  ])('has nothing at %s', async path => {
    expect(await rawStatus(path)).toBe(404)
  })
})

/** `fetch` would tidy the path up first. */
function rawStatus(path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const asked = request({ port: server.port, host: '127.0.0.1', path, headers: KEY }, response => {
      response.resume()
      resolve(response.statusCode)
    })
    asked.on('error', reject)
    asked.end()
  })
}
