// The `ollama` package against a server process on the demo model: what tools that speak only that API need.
import { Ollama } from 'ollama'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ServerProcess, startServer } from './serverProcess.js'

let server: ServerProcess
let ollama: Ollama

beforeAll(async () => {
  server = await startServer(['--images', 'describe-absent'])
  ollama = new Ollama({ host: server.url })
})
afterAll(() => server?.stop())

const model = 'demo'
const messages = [{ role: 'user', content: 'Tell me a story about a little dog' }]
const options = { temperature: 0, num_predict: 12 }

describe('chat', () => {
  test('answers, whole and streamed, with the same text', async () => {
    const whole = await ollama.chat({ model, messages, options })
    expect(whole).toMatchObject({ model, done: true, done_reason: 'length', eval_count: 12 })
    expect(whole.message).toMatchObject({ role: 'assistant', content: expect.stringMatching(/^Once/) })
    expect(whole.prompt_eval_count).toBeGreaterThan(5)
    expect(whole.eval_duration).toBeGreaterThan(1e5) // nanoseconds
    let text = ''
    let last: { done: boolean; eval_count: number } | null = null
    for await (const part of await ollama.chat({ model, messages, options, stream: true })) {
      text += part.message.content
      last = part
    }
    expect(text).toBe(whole.message.content)
    expect(last).toMatchObject({ done: true, eval_count: 12 })
  })

  test('thinks, in a field of its own', async () => {
    const request = { model, messages, think: true, options: { ...options, num_predict: 60 } }
    const { message } = await ollama.chat(request)
    expect(message.thinking).toMatch(/^The user /)
    expect(message.content).toMatch(/^Once/)
  })

  test('goes on with an answer that the client begins', async () => {
    const { message } = await ollama.chat({ model, messages, options })
    const begun = { role: 'assistant', content: message.content.split(' ').slice(0, 3).join(' ') }
    const request = { model, options: { ...options, num_predict: 9 }, think: true } // without any, then
    const rest = await ollama.chat({ ...request, messages: [...messages, begun] })
    expect(begun.content + rest.message.content).toBe(message.content)
    const thought = { role: 'assistant', content: '', thinking: 'The user wants' }
    const more = await ollama.chat({ ...request, messages: [...messages, thought] })
    expect(more.message.thinking).toMatch(/^ \w/)
  })

  test('gives JSON of a schema', async () => {
    const format = { type: 'object', properties: { n: { type: 'integer', minimum: 0, maximum: 9 } }, required: ['n'] }
    const { message } = await ollama.chat({ model, messages, format, options: { num_predict: 60 } })
    expect(JSON.parse(message.content)).toMatchObject({ n: expect.any(Number) })
  })

  test('takes tools, their calls and results, and images that it cannot see', async () => {
    const tool = {
      type: 'function',
      function: { name: 'add', description: 'Adds', parameters: { type: 'object', properties: {} } },
    }
    const history = [
      { ...messages[0], images: ['aGVsbG8='] },
      { role: 'assistant', content: '', tool_calls: [{ function: { name: 'add', arguments: { a: 1 } } }] },
      { role: 'tool', tool_name: 'add', content: '2' },
    ]
    const { done_reason } = await ollama.chat({ model, messages: history, tools: [tool], options })
    expect(done_reason).toMatch(/stop|length/)
  })

  test('says that it is there when nothing is asked', async () => {
    expect(await ollama.chat({ model, messages: [] })).toMatchObject({ done: true, done_reason: 'load' })
  })
})

test('generates from a prompt, with a system text or as it is', async () => {
  const whole = await ollama.generate({ model, prompt: messages[0].content, options })
  expect(whole).toMatchObject({ model, done: true, response: expect.stringMatching(/^Once/) })
  let text = ''
  for await (const part of await ollama.generate({ model, prompt: messages[0].content, options, stream: true })) {
    text += part.response
  }
  expect(text).toBe(whole.response)
  const raw = await ollama.generate({ model, prompt: 'Once upon a time', raw: true, options })
  expect(raw.response).toMatch(/^,/)
})

test('says what it has', async () => {
  const { models } = await ollama.list()
  expect(models).toMatchObject([{ name: model, details: { family: expect.stringContaining('qwen') } }])
  expect(models[0].size).toBeGreaterThan(1e7)
  expect(await ollama.ps()).toMatchObject({ models: [{ name: model }] })
  const about = await ollama.show({ model })
  expect(about.capabilities).toEqual(['completion', 'tools', 'thinking'])
  const info = about.model_info as unknown as Record<string, unknown>
  expect(info[`${info['general.architecture']}.context_length`]).toBe(4096)
})

test('tells errors in its own shape', async () => {
  const tooLong = ollama.chat({ model, messages: [{ role: 'user', content: 'dog '.repeat(9000) }] })
  await expect(tooLong).rejects.toMatchObject({ status_code: 400, error: expect.stringContaining('maximum context') })
  const alone = ollama.embed({ model, input: 'dog '.repeat(9000), truncate: false })
  await expect(alone).rejects.toMatchObject({ status_code: 400, error: expect.stringContaining('maximum context') })
})

test('makes vectors of texts', async () => {
  const { embeddings, prompt_eval_count } = await ollama.embed({ model, input: ['a little dog', 'a cat'] })
  expect(embeddings.map(vector => Math.hypot(...vector).toFixed(5))).toEqual(['1.00000', '1.00000'])
  expect(prompt_eval_count).toBeGreaterThan(3)
  expect((await ollama.embeddings({ model, prompt: 'a cat' })).embedding).toEqual(embeddings[1])
  for (const input of [[], '']) expect((await ollama.embed({ model, input })).embeddings).toEqual([])
})

test('takes the options that mean nothing special, and refuses what it would have to ignore', async () => {
  const prompt = messages[0].content
  const wide = await ollama.generate({ model, prompt, options: { ...options, stop: ['.'], num_predict: 1e6 } })
  expect(wide).toMatchObject({ done_reason: 'stop' })
  const any = { model, prompt, options: { num_predict: 12, seed: -1, top_k: -1, temperature: 2 } }
  const answers = [await ollama.generate(any), await ollama.generate(any)].map(({ response }) => response)
  expect(answers[0]).not.toBe(answers[1])
  const seen = await ollama.generate({ model, prompt, raw: true, images: ['aGVsbG8='], options })
  expect(seen.prompt_eval_count).toBeGreaterThan(15) // a line says that there is one
  for (const wrong of [{ context: [1, 2] }, { template: 'x' }, { suffix: 'x' }, { keep_alive: 'soon' }]) {
    await expect(ollama.generate({ model, prompt, ...wrong }), JSON.stringify(wrong)).rejects.toThrow(
      Object.keys(wrong)[0],
    )
  }
  expect(await ollama.generate({ model, prompt: '', keep_alive: 0 })).toMatchObject({ done_reason: 'load' }) // it stays
})
