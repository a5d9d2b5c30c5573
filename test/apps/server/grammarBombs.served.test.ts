// Schemas, patterns, grammars and tools as somebody sends them who wants to stop the server: each gets its answer or a 400 that
// says why, and meanwhile nobody else notices: another client's schema is kept, /health answers, memory stays.
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { garbageSchema } from '../../support/faults/garbageSchema.js'
import { ANSWERED, REFUSED_OR_ANSWERED } from '../../support/faults/grammarBombs.js'
import { type HealthReport, watchHealth } from '../../support/servers/healthProbe.js'
import { type ServerProcess, startServer } from './serverProcess.js'
import { postJson } from './sse.js'

const MAX_GROWTH = 500 * 2 ** 20
const AT_ONCE = 3

let server: ServerProcess
let health: ReturnType<typeof watchHealth>
let ended: HealthReport | null = null

beforeAll(async () => {
  server = await startServer(['--context', '2048', '--max-body', '32MiB'])
  await ordinary() // what is loaded with the first schema
  health = watchHealth(server.port, server.child.pid as number)
})
afterAll(async () => {
  if (ended === null) await health?.stop()
  await server?.stop()
})

const chat = { messages: [{ role: 'user', content: 'JSON please' }], max_tokens: 12, temperature: 0 }
const ask = (fields: object) => postJson(`${server.url}/v1/chat/completions`, { ...chat, ...fields })

let asked = 0

/** A client with a plain schema of its own, which nobody sent before. */
async function ordinary(): Promise<void> {
  const schema = {
    type: 'object',
    properties: { [`key ${asked++}`]: { type: 'integer', minimum: 0, maximum: 99 }, tag: { enum: ['a', 'b'] } },
    required: [`key ${asked - 1}`],
    additionalProperties: false,
  }
  const format = { type: 'json_schema', json_schema: { name: 'x', schema } }
  const response = await ask({ response_format: format, max_tokens: 40 })
  const body = await response.json()
  expect([response.status, body]).toEqual([200, expect.anything()])
  const { message, finish_reason } = body.choices[0]
  if (finish_reason === 'stop') expect(JSON.parse(message.content)).toHaveProperty(schema.required)
}

/** Peak memory in bytes, where the system tells. */
function peakMemory(): number | null {
  if (process.platform !== 'linux') return null
  const status = readFileSync(`/proc/${server.child.pid}/status`, 'utf8')
  return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) * 1024
}

async function explode(bombs: Readonly<Record<string, () => object>>, statuses: readonly number[]): Promise<void> {
  const left = Object.entries(bombs)
  const client = async () => {
    for (let bomb = left.shift(); bomb !== undefined; bomb = left.shift()) {
      const [name, fields] = bomb
      const [response] = await Promise.all([ask(fields()), ordinary()])
      const body = await response.json()
      expect(statuses, `${name}: ${response.status} ${JSON.stringify(body).slice(0, 300)}`).toContain(response.status)
      if (response.status === 400) expect(body.error.message.length, name).toBeLessThan(1000)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
}

test('answers what is only large', async () => {
  await explode(ANSWERED, [200])
}, 120_000)

test('answers or refuses nonsense', async () => {
  await explode(REFUSED_OR_ANSWERED, [200, 400])
}, 120_000)

test('takes or refuses random garbage for schemas, patterns of tools and formats alike', async () => {
  const schemas = fc.sample(garbageSchema(), { numRuns: 60, seed: 31 })
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let schema = schemas.pop(); schema !== undefined; schema = schemas.pop()) {
        const parameters = { type: 'object', properties: { value: schema }, required: ['value'] }
        const tools = [{ type: 'function', function: { name: 'store', strict: true, parameters } }]
        const fields =
          schemas.length % 2 === 0
            ? { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } }
            : { tools, tool_choice: 'required' }
        const response = await ask({ ...fields, max_tokens: 3 })
        const body = await response.text()
        expect([200, 400], `${JSON.stringify(schema)}: ${response.status} ${body}`).toContain(response.status)
        if (response.status === 400) expect(body).toMatch(/at (#|store#)/)
      }
    }),
  )
})

test('leaves off when its client hangs up, and a shutdown waits for none of it', async () => {
  const body = JSON.stringify({ ...chat, ...ANSWERED['20,000 oneOf constants']() })
  const clients = Array.from({ length: 6 }, (_, i) => {
    const client = new AbortController()
    setTimeout(() => client.abort(), 40 * i)
    const headers = { 'content-type': 'application/json' }
    const request = { method: 'POST', headers, body: body.replace('value 7', `value of ${i}`), signal: client.signal }
    return fetch(`${server.url}/v1/chat/completions`, request).then(
      response => response.status,
      error => (error as Error).name,
    )
  })
  for (const outcome of await Promise.all(clients)) expect([200, 'AbortError']).toContain(outcome)
  await ordinary()
  await server.idle()
})

test('was there for everybody else all the time, with the memory it had', async () => {
  ended = await health.stop()
  expect(ended.problems).toEqual([])
  expect(ended.own.count).toBeGreaterThan(20)
  // Bodies of megabytes are read and other tests run meanwhile: bounds are twice those of a machine of its own.
  expect(ended.own.p99).toBeLessThan(500)
  expect(ended.own.max).toBeLessThan(2000)
  const peak = peakMemory()
  const now = await server.metric('process_resident_memory_bytes')
  if (peak !== null) expect(peak).toBeLessThan(200 * 2 ** 20 + MAX_GROWTH)
  expect(now).toBeLessThan(200 * 2 ** 20 + MAX_GROWTH)
})

test('stops at once in the middle of them', async () => {
  const bombs = Object.values(ANSWERED).map(fields =>
    ask(fields()).then(
      response => response.status,
      () => 'cut off',
    ),
  )
  await new Promise(resolve => setTimeout(resolve, 30))
  const { code, milliseconds } = await server.stop()
  expect(code).toBe(0)
  expect(milliseconds).toBeLessThan(12_000)
  for (const outcome of await Promise.all(bombs)) expect([200, 429, 503, 'cut off']).toContain(outcome)
})
