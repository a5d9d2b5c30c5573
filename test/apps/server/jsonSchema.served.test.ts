// Two hundred random schemas through the server, at a temperature at which the model would write anything: every answer
// that ends by itself parses and fits. The same for arguments of strict tools.
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormatsModule from 'ajv-formats'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { randomSchema } from '../../support/randomSchema.js'
import { type ServerProcess, startServer } from './serverProcess.js'
import { postJson } from './sse.js'

const addFormats = addFormatsModule as unknown as (ajv: Ajv2020) => void
const SCHEMAS = 120
const AT_ONCE = 16

let server: ServerProcess
beforeAll(async () => {
  server = await startServer(['--parallel', String(AT_ONCE)])
})
afterAll(() => server?.stop())

const ajv = new Ajv2020({ strict: false, ownProperties: true, allErrors: true, logger: false })
addFormats(ajv)

function expectFit(schema: unknown, text: string): void {
  const validate = ajv.compile(schema as object)
  const fits = validate(JSON.parse(text))
  expect(fits, `${JSON.stringify(schema)} let ${text} through: ${ajv.errorsText(validate.errors)}`).toBe(true)
}

/** Asks with each schema, several at once; gives how many answers ended by themselves. */
async function ask<T>(schemas: readonly T[], one: (schema: T, index: number) => Promise<boolean>): Promise<number> {
  let next = 0
  let finished = 0
  const worker = async () => {
    while (next < schemas.length) {
      const index = next++
      if (await one(schemas[index], index)) finished++
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  return finished
}

const base = { messages: [{ role: 'user', content: 'JSON please' }], temperature: 1.5, max_tokens: 120 }

test(`keeps ${SCHEMAS} random schemas`, async () => {
  const schemas = fc.sample(randomSchema(), { numRuns: SCHEMAS, seed: 11 })
  const finished = await ask(schemas, async (schema, seed) => {
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema, strict: true } }
    const response = await postJson(`${server.url}/v1/chat/completions`, { ...base, seed, response_format })
    const body = await response.json()
    expect(response.status, JSON.stringify([schema, body])).toBe(200)
    const [{ message, finish_reason }] = body.choices
    if (finish_reason !== 'stop') return false
    expectFit(schema, message.content)
    return true
  })
  expect(finished).toBeGreaterThan(SCHEMAS / 2)
}, 240_000)

test('keeps the schemas of strict tools', async () => {
  const wrap = (value: unknown) => ({
    type: 'object',
    properties: { value },
    required: ['value'],
    additionalProperties: false,
  })
  const schemas = fc.sample(randomSchema(), { numRuns: 24, seed: 12 }).map(wrap)
  const finished = await ask(schemas, async (parameters, seed) => {
    const tools = [{ type: 'function', function: { name: 'store', strict: true, parameters } }]
    const request = { ...base, seed, tools, tool_choice: 'required', parallel_tool_calls: false }
    const response = await postJson(`${server.url}/v1/chat/completions`, request)
    const body = await response.json()
    expect(response.status, JSON.stringify([parameters, body])).toBe(200)
    const [{ message, finish_reason }] = body.choices
    if (finish_reason !== 'tool_calls') return false
    expectFit(parameters, message.tool_calls[0].function.arguments)
    return true
  })
  expect(finished).toBeGreaterThan(8)
}, 120_000)
