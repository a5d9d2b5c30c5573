// The `ai` package, through its provider for OpenAI-compatible servers, against a server process on the demo model.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, jsonSchema, Output, streamText, tool } from 'ai'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type ServerProcess, startServer } from './serverProcess.js'

let server: ServerProcess
const model = () =>
  createOpenAICompatible({
    name: 'moeflux',
    baseURL: `${server.url}/v1`,
    includeUsage: true,
    supportsStructuredOutputs: true,
  })('demo')

beforeAll(async () => {
  server = await startServer()
})
afterAll(() => server?.stop())

const prompt = 'Tell me a story about a little dog'
const options = { temperature: 0, maxOutputTokens: 12, maxRetries: 0 }
const digit = { type: 'integer', minimum: 0, maximum: 9 } as const

test('generates and streams the same text', async () => {
  const whole = await generateText({ model: model(), prompt, ...options })
  expect(whole.text.length).toBeGreaterThan(10)
  expect(whole.finishReason).toBe('length')
  const stream = streamText({ model: model(), prompt, ...options })
  let text = ''
  for await (const piece of stream.textStream) text += piece
  expect(text).toBe(whole.text)
  expect(await stream.usage).toMatchObject({ outputTokens: 12 })
  expect((await stream.usage).inputTokens).toBeGreaterThan(5)
})

test('takes reasoning apart from text', async () => {
  const { reasoningText } = await generateText({
    model: model(),
    prompt,
    ...options,
    providerOptions: { moeflux: { chat_template_kwargs: { enable_thinking: true } } },
  })
  expect(reasoningText?.length).toBeGreaterThan(5)
})

test('calls tools, whole and streamed, and goes on with their results', async () => {
  const seen: number[] = []
  const double = tool({
    description: 'Doubles a number',
    inputSchema: jsonSchema<{ a: number }>({
      type: 'object',
      properties: { a: digit },
      required: ['a'],
      additionalProperties: false,
    }),
    execute: async ({ a }) => {
      seen.push(a)
      return 2 * a
    },
  })
  const request = {
    model: model(),
    prompt,
    ...options,
    maxOutputTokens: 80,
    tools: { double },
    toolChoice: 'required' as const,
  }
  const whole = await generateText(request)
  expect(whole.toolCalls[0]).toMatchObject({ toolName: 'double', input: { a: expect.any(Number) } })
  expect(whole.toolResults[0].output).toBe(2 * seen[0])
  const stream = streamText(request)
  const calls = await stream.toolCalls
  expect(calls[0]).toMatchObject({ toolName: 'double', input: { a: expect.any(Number) } })
  const messages = [{ role: 'user' as const, content: prompt }, ...whole.response.messages]
  const next = await generateText({ model: model(), messages, tools: { double }, ...options })
  expect(next.text.length).toBeGreaterThan(0)
})

test('gives objects of a schema', async () => {
  const schema = jsonSchema<{ digit: number }>({
    type: 'object',
    properties: { digit },
    required: ['digit'],
    additionalProperties: false,
  })
  const { output } = await generateText({
    model: model(),
    prompt,
    temperature: 1.5,
    maxOutputTokens: 60,
    output: Output.object({ schema }),
  })
  expect(output.digit).toBeGreaterThanOrEqual(0)
  expect(output.digit).toBeLessThanOrEqual(9)
})

test('tells errors', async () => {
  const wrong = generateText({ model: model(), prompt: 'dog '.repeat(60_000), maxRetries: 0 })
  await expect(wrong).rejects.toMatchObject({
    statusCode: 400,
    message: expect.stringContaining('maximum context length'),
  })
})
