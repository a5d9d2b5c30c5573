// Tool calls as they are written, over each API: a long call comes in many pieces, from soon after it begins, and the
// pieces are the call. What only looks like a call comes out as text.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import Anthropic from '@anthropic-ai/sdk'
import { jsonSchema, streamText, tool } from 'ai'
import fc from 'fast-check'
import OpenAI from 'openai'
import { afterEach, describe, expect, test } from 'vitest'
import { MoefluxLanguageModel } from '#moeflux/apps/ai/languageModel.js'
import { type RunningServer, serve } from '#moeflux/apps/server/serve.js'
import type { SessionEvent } from '#moeflux/chat/events.js'
import { answering, type ScriptedModel, scriptedModel } from '../../support/models/scriptedModel.js'
import { demoTokenizer } from '../../support/textTools.js'
import { postJson, sentEvents } from './sse.js'

const tokenizer = await demoTokenizer()
const REPEATS = 18 // more than 400 tokens
const ARGUMENTS = JSON.stringify({ path: 'a.txt', text: 'The little dog said "hi" \n and ran 😀. '.repeat(REPEATS) })
const CALL = `Well.\n<tool_call>\n{"name": "write", "arguments": ${ARGUMENTS}}\n</tool_call>`
const WRITE = { name: 'write', parameters: { type: 'object', properties: { text: { type: 'string' } } } }
const ASK = [{ role: 'user' as const, content: 'Write' }]

let opened: { scripted: ScriptedModel; server: RunningServer } | null = null
afterEach(async () => {
  await opened?.server.stop(0)
  await opened?.scripted.model.close()
  opened = null
})

async function open(answer: string) {
  const scripted = await scriptedModel({ script: answering(tokenizer, () => answer) })
  const server = await serve(scripted.model, { port: 0 })
  opened = { scripted, server }
  return { url: server.url, model: scripted.model }
}

/** Pieces of arguments: many, none of them long, and together the call. */
function expectPieces(pieces: readonly string[]): void {
  expect(pieces.join('')).toBe(ARGUMENTS)
  expect(pieces.length).toBeGreaterThan(150)
  expect(Math.max(...pieces.map(piece => piece.length))).toBeLessThan(60)
}

describe('a call of 400 tokens and more streams', () => {
  test('from a session, beginning within ten tokens', async () => {
    const { model } = await open(CALL)
    expect(tokenizer.encode(CALL).length).toBeGreaterThan(400)
    const events: SessionEvent[] = []
    const seen: number[] = [] // tokens when an event came
    for await (const event of model.createSession().chat({ messages: ASK, tools: [WRITE] })) {
      events.push(event)
      seen.push(opened?.scripted.evaluated() ?? 0)
    }
    const at = (type: SessionEvent['type']) => events.findIndex(event => event.type === type)
    const start = events[at('toolCallStart')] as { id: string; name: string }
    expect(start.name).toBe('write')
    expect(events[at('toolCall')]).toEqual({ type: 'toolCall', id: start.id, name: 'write', arguments: ARGUMENTS })
    expectPieces(events.flatMap(event => (event.type === 'toolCallDelta' ? [event.arguments] : [])))
    const head = tokenizer.encode(CALL.slice(0, CALL.indexOf(ARGUMENTS))).length // up to the arguments' first character
    expect(seen[at('toolCallStart')] - seen[at('usage')]).toBeLessThanOrEqual(head + 1)
    expect(seen[at('toolCallDelta')] - seen[at('usage')]).toBeLessThanOrEqual(head + 10)
  })

  test('over chat completions, for the official client', async () => {
    const { url } = await open(CALL)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 })
    const tools = [{ type: 'function' as const, function: WRITE }]
    const stream = client.chat.completions.stream({ model: 'm', messages: ASK, tools })
    const pieces: string[] = []
    stream.on('chunk', ({ choices: [choice] }) => {
      for (const call of choice?.delta.tool_calls ?? []) pieces.push(call.function?.arguments ?? '')
    })
    const { choices } = await stream.finalChatCompletion()
    expectPieces(pieces)
    expect(choices[0]).toMatchObject({ finish_reason: 'tool_calls', message: { content: 'Well.' } })
    expect(choices[0].message.tool_calls).toMatchObject([{ function: { name: 'write', arguments: ARGUMENTS } }])
  })

  test('over responses, for the official client', async () => {
    const { url } = await open(CALL)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 })
    const tools = [{ type: 'function' as const, strict: false, ...WRITE }]
    const stream = client.responses.stream({ model: 'm', input: 'Write', tools })
    const pieces: string[] = []
    stream.on('response.function_call_arguments.delta', ({ delta }) => pieces.push(delta))
    const { output } = await stream.finalResponse()
    expectPieces(pieces)
    expect(output.at(-1)).toMatchObject({
      type: 'function_call',
      name: 'write',
      arguments: ARGUMENTS,
      status: 'completed',
    })
  })

  test('over messages, for the official client', async () => {
    const { url } = await open(CALL)
    const client = new Anthropic({ baseURL: url, apiKey: 'any', maxRetries: 0 })
    const tools = [{ name: 'write', input_schema: { ...WRITE.parameters, type: 'object' as const } }]
    const stream = client.messages.stream({ model: 'm', max_tokens: 3000, messages: ASK, tools })
    const pieces: string[] = []
    stream.on('inputJson', piece => pieces.push(piece))
    const { content, stop_reason } = await stream.finalMessage()
    expectPieces(pieces)
    expect(stop_reason).toBe('tool_use')
    expect(content.at(-1)).toMatchObject({ type: 'tool_use', name: 'write', input: JSON.parse(ARGUMENTS) })
  })

  test('in the AI SDK, over the server and from the library itself', async () => {
    const { url, model } = await open(CALL)
    const session = model.createSession()
    const models = [
      createOpenAICompatible({ name: 'moeflux', baseURL: `${url}/v1` })('m'),
      new MoefluxLanguageModel('m', async () => session),
    ]
    for (const each of models) {
      const write = tool({ inputSchema: jsonSchema<object>(WRITE.parameters as never) })
      const stream = streamText({ model: each, prompt: 'Write', tools: { write } })
      const pieces: string[] = []
      for await (const part of stream.fullStream) if (part.type === 'tool-input-delta') pieces.push(part.delta)
      expectPieces(pieces)
      expect((await stream.toolCalls)[0]).toMatchObject({ toolName: 'write', input: JSON.parse(ARGUMENTS) })
    }
  })
})

describe('a custom tool of responses', () => {
  const input = 'select "a"\n  from 😀 where b = \'\\\\\''
  const answer = `<tool_call>\n${JSON.stringify({ name: 'sql', arguments: { input } })}\n</tool_call>`
  const grammar = { type: 'grammar' as const, syntax: 'lark' as const, definition: 'start: "select"' }
  const tools = [{ type: 'custom' as const, name: 'sql', description: 'Asks', format: grammar }]

  test('gets its text, streamed and whole, and takes its result', async () => {
    const { url } = await open(answer)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 })
    const pieces: string[] = []
    const stream = client.responses.stream({ model: 'm', input: 'Ask', tools })
    stream.on('response.custom_tool_call_input.delta', ({ delta }) => pieces.push(delta))
    const { output } = await stream.finalResponse()
    expect(pieces.join('')).toBe(input)
    expect(pieces.length).toBeGreaterThan(5)
    expect(output).toMatchObject([{ type: 'custom_tool_call', name: 'sql', input }])
    const [call] = output as { call_id: string }[]
    const result = { type: 'custom_tool_call_output' as const, call_id: call.call_id, output: '1' }
    const asked = { role: 'user' as const, content: 'Ask' }
    const item = { type: 'custom_tool_call' as const, call_id: call.call_id, name: 'sql', input }
    const next = await client.responses.create({ model: 'm', input: [asked, item, result], tools })
    expect(next.output).toMatchObject([{ type: 'custom_tool_call', input }])
  })
})

describe('what is no call', () => {
  const texts = [
    'a <tool_call> is a tag, as in <tool_call>so</tool_call>.',
    '<tool_call>\n{"name": 5, "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "write", "arguments": {"a": 1]}}\n</tool_call> and on',
  ]

  test.each(texts)('comes out as text of every API: %s', async text => {
    const { url } = await open(text)
    const tools = [{ type: 'function', function: WRITE }]
    const chat = await sentEvents(await postJson(`${url}/v1/chat/completions`, { messages: ASK, tools, stream: true }))
    const deltas = chat.slice(0, -1).map(({ data }) => JSON.parse(data).choices[0])
    expect(deltas.map(({ delta }) => delta.content ?? '').join('')).toBe(text)
    expect(deltas.at(-1).finish_reason).toBe('stop')
    const whole = await (await postJson(`${url}/v1/chat/completions`, { messages: ASK, tools })).json()
    expect(whole.choices[0].message).toMatchObject({ content: text })
    expect(whole.choices[0].message.tool_calls).toBeUndefined()

    const client = new Anthropic({ baseURL: url, apiKey: 'any', maxRetries: 0 })
    const own = [{ name: 'write', input_schema: { type: 'object' as const } }]
    const final = await client.messages.stream({ model: 'm', max_tokens: 99, messages: ASK, tools: own }).finalMessage()
    expect(final.content.map(block => (block.type === 'text' ? block.text : '')).join('')).toBe(text)
    expect(final.stop_reason).toBe('end_turn')

    const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 })
    const functions = [{ type: 'function' as const, strict: false, ...WRITE }]
    const response = await openai.responses.stream({ model: 'm', input: 'Write', tools: functions }).finalResponse()
    expect(response.output.map(({ type }) => type)).toEqual(['message'])
    expect(response.output_text).toBe(text)
  })

  test('comes out as text of a session, whatever surrounds it and however it is cut into tokens', async () => {
    const piece = fc.constantFrom(
      '<tool_call>',
      '</tool_call>',
      '{"name": "write"',
      ', "arguments": {',
      '"a": 1',
      '}',
      'word ',
      '\n',
      '<',
    )
    let answer = ''
    const scripted = await scriptedModel({ script: answering(tokenizer, () => answer) })
    const session = scripted.model.createSession()
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async pieces => {
        answer = `so ${pieces.join('')} it is.`
        let text = ''
        let told = ''
        for await (const event of session.chat({ messages: ASK, tools: [WRITE] })) {
          if (event.type === 'text') text += event.text
          else if (event.type === 'toolCallStart') told = ''
          else if (event.type === 'toolCallDelta') told += event.arguments
          else if (event.type === 'toolCall') {
            expect(event.arguments).toBe(told)
            text += '<tool_call>'
          }
        }
        // Nothing is lost but calls, and newlines around them.
        if (!text.includes('<tool_call>') || text === answer) expect(text).toBe(answer)
        else expect(text.length).toBeLessThanOrEqual(answer.length)
      }),
      { numRuns: 60 },
    )
    await scripted.model.close()
  })
})

test('usage and metrics tell of tokens that were guessed ahead', async () => {
  const script = answering(tokenizer, () => 'Once upon a time there was a little girl.')
  const guess = (tokens: readonly number[]) => (tokens.length % 3 === 0 ? 300 : script(tokens)) // wrong at every third place
  const scripted = await scriptedModel({ script, guess, drafts: 2 })
  opened = { scripted, server: await serve(scripted.model, { port: 0 }) }
  const { url } = opened.server
  const answer = await (await postJson(`${url}/v1/chat/completions`, { messages: ASK, temperature: 0 })).json()
  const details = answer.usage.completion_tokens_details
  expect(answer.choices[0].message.content).toBe('Once upon a time there was a little girl.')
  expect(details.accepted_prediction_tokens).toBeGreaterThan(2)
  expect(details.rejected_prediction_tokens).toBeGreaterThan(0)
  const metrics = await (await fetch(`${url}/metrics`)).text()
  expect(metrics).toContain(`moeflux_guesses_total{outcome="accepted"} ${details.accepted_prediction_tokens}`)
  expect(metrics).toContain(`moeflux_guesses_total{outcome="rejected"} ${details.rejected_prediction_tokens}`)
  const { guesses, accepted } = scripted.model.stats().drafts!
  expect([accepted, guesses - accepted]).toEqual([
    details.accepted_prediction_tokens,
    details.rejected_prediction_tokens,
  ])
})
