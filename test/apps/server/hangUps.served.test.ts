// Clients that hang up in the middle of an answer, and a worker that dies: what everybody else gets, and what /health says.
import { expect, onTestFinished, test } from 'vitest'
import { serve } from '#moeflux/apps/server/serve.js'
import type { WasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import type { WorkerPool } from '#moeflux/backends/wasm/workers/workerPool.js'
import { openModel } from '#moeflux/chat/openModel.js'
import { demoModel } from '../../support/models/models.js'
import { seededRandom } from '../../support/random.js'
import { startServer } from './serverProcess.js'
import { postJson } from './sse.js'

const greedy = {
  messages: [{ role: 'user', content: 'Tell me a story about a little dog' }],
  max_tokens: 12,
  temperature: 0,
}

async function answerOf(url: string): Promise<string> {
  const response = await postJson(`${url}/v1/chat/completions`, greedy)
  const body = (await response.json()) as { choices?: { message: { content: string } }[]; error?: unknown }
  return body.choices?.[0].message.content ?? JSON.stringify(body.error)
}

test('clients hang up at any time, and others get the right answer', async () => {
  const server = await startServer(['--threads', '3'])
  const want = await answerOf(server.url)
  const random = seededRandom(5)
  const hangUp = async () => {
    const words = Array.from({ length: 1 + Math.floor(random() * 30) }, () => Math.floor(random() * 1000)).join(' ')
    const request = fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ messages: [{ role: 'user', content: words }], max_tokens: 50, stream: true }),
      signal: AbortSignal.timeout(1 + Math.floor(random() * 25)),
    })
    await request.then(response => response.text()).catch(() => {})
  }
  const until = Date.now() + 5000
  for (let round = 0; round < 20 && (round < 3 || Date.now() < until); round++) {
    const leaving = Array.from({ length: 10 }, hangUp)
    expect(await answerOf(server.url)).toBe(want)
    await Promise.all(leaving)
  }
  expect(await (await fetch(`${server.url}/health`)).json()).toMatchObject({ status: 'ok' })
  expect(await answerOf(server.url)).toBe(want)
  const { code, milliseconds } = await server.stop()
  expect(code).toBe(0)
  expect(milliseconds).toBeLessThan(10_000)
})

test('a worker that dies: everybody is told, /health too, and the server can still be stopped', async () => {
  const model = await openModel(demoModel, { backend: 'wasm', threads: 2 })
  onTestFinished(() => model.close())
  const warnings: string[] = []
  const server = await serve(model, { port: 0, onWarning: line => warnings.push(line) })
  expect((await fetch(`${server.url}/health`)).status).toBe(200)
  const running = postJson(`${server.url}/v1/chat/completions`, { ...greedy, max_tokens: 2000 })
  const { compute } = model as unknown as { compute: WasmBackend }
  await expect.poll(() => compute.stats().steps).toBeGreaterThan(2)
  await (compute.runtime.pool as WorkerPool).threads[1].terminate()
  for (const response of [await running, await postJson(`${server.url}/v1/chat/completions`, greedy)]) {
    expect(response.status).toBe(500)
    expect(await response.json()).toMatchObject({
      error: { code: 'device_lost', message: expect.stringContaining('open the model again') },
    })
  }
  const health = await fetch(`${server.url}/health`)
  expect(health.status).toBe(503)
  expect(await health.json()).toMatchObject({ status: 'failed', error: { code: 'DEVICE_LOST' } })
  expect(warnings.join('\n')).toContain('a compute worker died')
  await server.stop(1000)
})
