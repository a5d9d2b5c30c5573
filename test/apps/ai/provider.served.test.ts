// `moeflux/ai` with the `ai` package: text, thinking, tools, objects and errors, in this process on the demo model.
import { cosineSimilarity, embed, embedMany, generateText, jsonSchema, Output, streamText, tool } from 'ai'
import { afterAll, describe, expect, test } from 'vitest'
import { createMoeflux } from '#moeflux/ai.js'
import { openModel } from '#moeflux/index.js'
import { demoModel } from '../../support/models/models.js'

const moeflux = createMoeflux({ threads: 1, contextLength: 1024 })
afterAll(() => moeflux.close())

const model = moeflux('demo')
const prompt = 'Tell me a story about a little dog'
const options = { model, prompt, temperature: 0, maxOutputTokens: 12, maxRetries: 0 }
const digit = { type: 'integer', minimum: 0, maximum: 9 } as const
const properties = { type: 'object', properties: { a: digit }, required: ['a'], additionalProperties: false } as const

describe('the provider', () => {
  test('generates and streams the same text, and counts what it reuses', async () => {
    const whole = await generateText(options)
    expect(whole.text.length).toBeGreaterThan(10)
    expect(whole).toMatchObject({ finishReason: 'length', usage: { outputTokens: 12 } })
    const stream = streamText({ ...options, model: moeflux('demo') })
    let text = ''
    for await (const piece of stream.textStream) text += piece
    expect(text).toBe(whole.text)
    expect((await stream.usage).inputTokenDetails.cacheReadTokens).toBeGreaterThan(5)
  })

  test('makes vectors of texts, and stops when it is told to', async () => {
    const model = moeflux.embeddingModel('demo')
    const values = ['The little dog ran home.', 'A small dog ran to its home.', '{"sum": [17, 4]}']
    const { embeddings, usage } = await embedMany({ model, values, maxRetries: 0 })
    const [dog, puppy, sum] = embeddings
    expect(cosineSimilarity(dog, puppy)).toBeGreaterThan(cosineSimilarity(dog, sum))
    expect(usage.tokens).toBeGreaterThan(12)
    expect((await embed({ model, value: values[0], maxRetries: 0 })).embedding).toEqual(dog)
    const abortSignal = AbortSignal.abort(new Error('not now'))
    await expect(embed({ model, value: values[0], maxRetries: 0, abortSignal })).rejects.toThrow('not now')
  })

  test('takes thinking apart, within a budget', async () => {
    const providerOptions = { moeflux: { thinking: true, thinkingBudget: 4 } }
    const whole = await generateText({ ...options, providerOptions })
    expect(whole.reasoningText?.length).toBeGreaterThan(3)
    expect(whole.usage.outputTokenDetails.reasoningTokens).toBeLessThanOrEqual(5)
    const stream = streamText({ ...options, providerOptions })
    expect(await stream.reasoningText).toBe(whole.reasoningText)
    expect(await stream.text).toBe(whole.text)
  })

  test('calls tools and goes on with their results', async () => {
    const double = tool({ inputSchema: jsonSchema<{ a: number }>(properties), execute: async ({ a }) => 2 * a })
    const request = { ...options, maxOutputTokens: 80, tools: { double }, toolChoice: 'required' as const }
    const whole = await generateText(request)
    const [call] = whole.toolCalls
    expect(call).toMatchObject({ toolName: 'double', input: { a: expect.any(Number) } })
    expect(whole.toolResults[0].output).toBe(2 * (call.input as { a: number }).a)
    expect(whole.finishReason).toBe('tool-calls')
    expect((await streamText(request).toolCalls)[0]).toMatchObject({ toolName: 'double' })
    const messages = [{ role: 'user' as const, content: prompt }, ...whole.response.messages]
    const { prompt: _, ...rest } = options
    const next = await generateText({ ...rest, messages, tools: { double } })
    expect(next.text.length).toBeGreaterThan(0)
  })

  test('gives objects of a schema', async () => {
    const output = Output.object({ schema: jsonSchema<{ a: number }>(properties) })
    const result = await generateText({ ...options, temperature: 1.5, maxOutputTokens: 60, output })
    expect(result.output.a).toBeGreaterThanOrEqual(0)
  })

  test('stops when it is aborted, and tells what is wrong with a call', async () => {
    const controller = new AbortController()
    const stream = streamText({ ...options, maxOutputTokens: 900, abortSignal: controller.signal, onError: () => {} })
    let pieces = 0
    for await (const _ of stream.textStream) if (++pieces === 3) controller.abort()
    expect(pieces).toBeLessThan(10)
    await expect(generateText({ ...options, prompt: 'dog '.repeat(3000) })).rejects.toThrow(/context limit/)
    const image = { type: 'image' as const, image: new Uint8Array([137, 80, 78, 71]) }
    const pictured = generateText({ ...options, prompt: [{ role: 'user', content: [image] }] })
    await expect(pictured).rejects.toThrow(/text alone/)
    await expect(generateText({ ...options, model: moeflux('no such model') })).rejects.toThrow(/no such folder/)
  })

  test('takes a model that is open, and leaves it open', async () => {
    const opened = await openModel(demoModel, { threads: 1 })
    const provider = createMoeflux()
    const { text } = await generateText({ ...options, model: provider(opened) })
    expect(text.length).toBeGreaterThan(10)
    await provider.close()
    expect((await opened.generate({ prompt: 'Hi', maxTokens: 2 })).text.length).toBeGreaterThan(0)
    await opened.close()
  })
})
