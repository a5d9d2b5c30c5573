// The `ai` package through Anthropic's own provider, against a server process on the demo model: text, thinking, tools.
import { createAnthropic } from '@ai-sdk/anthropic'
import { generateText, jsonSchema, streamText, type ToolSet, tool } from 'ai'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type ServerProcess, startServer } from './serverProcess.js'

let server: ServerProcess
const model = () => createAnthropic({ baseURL: `${server.url}/v1`, apiKey: 'any' })('claude-3-5-haiku-latest') // its provider thinks little of names that it does not know

;(globalThis as { AI_SDK_LOG_WARNINGS?: boolean }).AI_SDK_LOG_WARNINGS = false

beforeAll(async () => {
  server = await startServer()
})
afterAll(() => server?.stop())

const prompt = 'Tell me a story about a little dog'
const options = { temperature: 0, maxOutputTokens: 12, maxRetries: 0 }

test('generates and streams the same text', async () => {
  const whole = await generateText({ model: model(), prompt, ...options })
  expect(whole.text.length).toBeGreaterThan(10)
  expect(whole.finishReason).toBe('length')
  const stream = streamText({ model: model(), prompt, ...options })
  let text = ''
  for await (const piece of stream.textStream) text += piece
  expect(text).toBe(whole.text)
  expect((await stream.usage).outputTokens).toBe(12)
})

test('takes thinking apart from text, and goes on after it', async () => {
  const thinking = { anthropic: { thinking: { type: 'enabled' as const, budgetTokens: 1024 } } }
  const request = { model: model(), prompt, maxOutputTokens: 64, maxRetries: 0, providerOptions: thinking }
  const whole = await generateText(request)
  expect(whole.reasoningText).toMatch(/^The user /)
  const stream = streamText(request)
  expect(await stream.reasoningText).toMatch(/^The user /)
  const messages = [{ role: 'user' as const, content: prompt }, ...whole.response.messages]
  const next = await generateText({
    ...options,
    model: model(),
    messages: [...messages, { role: 'user', content: 'Go on' }],
  })
  expect(next.text.length).toBeGreaterThan(0)
})

test('calls tools, whole and streamed, and goes on with their results', async () => {
  const double = tool({
    description: 'Doubles a number',
    inputSchema: jsonSchema<{ a: number }>({
      type: 'object',
      properties: { a: { type: 'integer', minimum: 0, maximum: 9 } },
      required: ['a'],
      additionalProperties: false,
    }),
    execute: async ({ a }) => 2 * a,
  })
  const toolChoice = { type: 'tool', toolName: 'double' } as const
  const request = { model: model(), prompt, ...options, maxOutputTokens: 80, tools: { double }, toolChoice }
  const whole = await generateText(request)
  const [call] = whole.toolCalls
  expect(call).toMatchObject({ toolName: 'double', input: { a: expect.any(Number) } })
  expect(whole.toolResults[0].output).toBe(2 * (call.input as { a: number }).a)
  expect((await streamText(request).toolCalls)[0]).toMatchObject({
    toolName: 'double',
    input: { a: expect.any(Number) },
  })
  const messages = [{ role: 'user' as const, content: prompt }, ...whole.response.messages]
  const next = await generateText({ model: model(), messages, tools: { double }, ...options })
  expect(next.text.length).toBeGreaterThan(0)
})

test('may send tools that a client runs by their type, and those that only its maker runs', async () => {
  const anthropic = createAnthropic({ baseURL: `${server.url}/v1`, apiKey: 'any' })
  const tools = {
    bash: anthropic.tools.bash_20250124({ execute: async () => 'done' }),
    web_search: anthropic.tools.webSearch_20250305({ maxUses: 1 }),
  } as unknown as ToolSet // of another version of the package that both use
  const toolChoice = { type: 'tool', toolName: 'bash' } as const
  const { toolCalls } = await generateText({
    ...options,
    model: model(),
    prompt,
    maxOutputTokens: 120,
    tools,
    toolChoice,
  })
  expect(toolCalls[0]).toMatchObject({ toolName: 'bash' })
  expect(server.log()).toContain("the tool 'web_search_20250305', which runs on servers of the API's maker: left out")
})
