// The official `@anthropic-ai/sdk` package against a server process on the demo model: every endpoint and option.
import Anthropic from '@anthropic-ai/sdk'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type ServerProcess, startServer } from './serverProcess.js'

let server: ServerProcess
let client: Anthropic

beforeAll(async () => {
  server = await startServer(['--api-key', 'secret', '--context', '2048'], { MOEFLUX_API_KEY: 'secret' })
  client = new Anthropic({ baseURL: server.url, apiKey: 'secret', maxRetries: 0 })
})
afterAll(() => server?.stop())
afterEach(() => server.idle())

const model = 'claude-demo'
const story = [{ role: 'user' as const, content: 'Tell me a story about a little dog' }]
const greedy = { model, messages: story, temperature: 0, max_tokens: 12 }
const tool: Anthropic.Tool = {
  name: 'add',
  description: 'Adds',
  input_schema: { type: 'object', properties: { a: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['a'] },
}

describe('messages', () => {
  test('answer, whole and streamed, with the same text', async () => {
    const whole = await client.messages.create(greedy)
    expect(whole).toMatchObject({ type: 'message', role: 'assistant', model, stop_reason: 'max_tokens' })
    expect(whole._request_id).toMatch(/^req_/)
    expect(whole.usage).toMatchObject({ output_tokens: 12, cache_creation_input_tokens: 0 })
    expect(whole.content).toHaveLength(1)
    const stream = client.messages.stream(greedy)
    const types: string[] = []
    stream.on('streamEvent', event => types.push(event.type))
    const final = await stream.finalMessage()
    expect(final.content).toMatchObject([{ type: 'text', text: (whole.content[0] as { text: string }).text }])
    expect(final.stop_reason).toBe('max_tokens')
    expect(final.usage.output_tokens).toBe(12)
    expect(final.usage.cache_read_input_tokens).toBeGreaterThan(0)
    expect(types.filter((type, i) => type !== types[i - 1])).toEqual([
      'message_start',
      ...(types.includes('ping') ? ['ping'] : []),
      'content_block_start',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ])
  })

  test('follow system text, stop sequences and sampling', async () => {
    const plain = await client.messages.create({ ...greedy, system: 'You tell stories.' })
    const { text } = plain.content[0] as { text: string }
    const word = text.split(' ')[2]
    const stopped = await client.messages.create({
      ...greedy,
      system: [{ type: 'text', text: 'You tell stories.' }],
      stop_sequences: ['never', word],
      ...{ top_k: 5, top_p: 0.9 },
      metadata: { user_id: 'someone' },
    })
    expect(stopped).toMatchObject({ stop_reason: 'stop_sequence', stop_sequence: word })
    expect((stopped.content[0] as { text: string }).text).toBe(text.slice(0, text.indexOf(word)))
  })

  test('go on with an answer that the client begins', async () => {
    const whole = await client.messages.create(greedy)
    const { text } = whole.content[0] as { text: string }
    const begun = text.split(' ').slice(0, 3).join(' ')
    const prefill = { role: 'assistant' as const, content: begun }
    const rest = await client.messages.create({ ...greedy, messages: [...story, prefill], max_tokens: 9 })
    expect(begun + (rest.content[0] as { text: string }).text).toBe(text)
    const blocks = { ...prefill, content: [{ type: 'text' as const, text: begun }] }
    const streamed = client.messages.stream({ ...greedy, messages: [...story, blocks], max_tokens: 9 })
    expect(begun + (await streamed.finalText())).toBe(text)
    const count = async (messages: Anthropic.MessageParam[]) =>
      (await client.messages.countTokens({ model, messages })).input_tokens
    expect((await count([...story, prefill])) - (await count(story))).toBe(3)
  })

  test('think within a budget when asked to', async () => {
    const answer = await client.messages.create({
      ...greedy,
      max_tokens: 30,
      thinking: { type: 'enabled', budget_tokens: 10 },
    })
    expect(answer.content.map(block => block.type)).toEqual(['thinking', 'text'])
    expect(answer.content[0]).toMatchObject({ signature: expect.stringMatching(/.{20}/) })
    const again = await client.messages.create({
      ...greedy,
      messages: [...story, { role: 'assistant', content: answer.content }, { role: 'user', content: 'Go on' }],
    })
    expect(again.content[0].type).toBe('text')
    // The thought counts where the answer goes on, too.
    const [thought, said] = answer.content as [Anthropic.ThinkingBlock, Anthropic.TextBlock]
    const goOn = async (content: Anthropic.ContentBlockParam[]) => {
      const messages = [...story, { role: 'assistant' as const, content }]
      const { input_tokens } = await client.messages.countTokens({ model, messages })
      const rest = await client.messages.create({ ...greedy, messages, max_tokens: 4 })
      expect(rest.usage.input_tokens + (rest.usage.cache_read_input_tokens ?? 0)).toBe(input_tokens)
      return rest.content
    }
    const start = said.text.split(' ').slice(0, 3).join(' ')
    const [after] = (await goOn([thought, { type: 'text', text: start }])) as Anthropic.TextBlock[]
    expect(said.text.startsWith(start + after.text)).toBe(true)
    const [more] = (await goOn([{ ...thought, thinking: 'The user' }])) as Anthropic.ThinkingBlock[]
    expect(more.type).toBe('thinking')
    const without = await client.messages.create({ ...greedy, thinking: { type: 'disabled' } })
    expect(without.content.map(block => block.type)).toEqual(['text'])
  })

  test('call tools and take their results', async () => {
    for (const tool_choice of [{ type: 'any' }, { type: 'tool', name: 'add' }] as const) {
      const options = {
        ...greedy,
        max_tokens: 80,
        tools: [tool],
        tool_choice: { ...tool_choice, disable_parallel_tool_use: true },
      }
      const answer = await client.messages.stream(options).finalMessage()
      expect(answer.stop_reason).toBe('tool_use')
      const use = answer.content.at(-1) as Anthropic.ToolUseBlock
      expect(use).toMatchObject({ type: 'tool_use', name: 'add', input: { a: expect.any(Number) } })
      const next = await client.messages.create({
        ...greedy,
        tools: [tool],
        messages: [
          ...story,
          { role: 'assistant', content: answer.content },
          {
            role: 'user',
            content: [{ type: 'tool_result', tool_use_id: use.id, content: [{ type: 'text', text: '7' }] }],
          },
        ],
      })
      expect(next.usage.cache_read_input_tokens).toBeGreaterThan(0)
      expect(['max_tokens', 'end_turn', 'tool_use']).toContain(next.stop_reason)
    }
    const none = await client.messages.create({ ...greedy, tools: [tool], tool_choice: { type: 'none' } })
    expect(none.content[0].type).toBe('text')
  })

  test('keep to a JSON schema', async () => {
    const schema = {
      type: 'object',
      properties: { ok: { type: 'boolean' } },
      required: ['ok'],
      additionalProperties: false,
    }
    const answer = await client.messages.create({
      ...greedy,
      max_tokens: 40,
      output_config: { format: { type: 'json_schema', schema } },
    })
    expect(JSON.parse((answer.content[0] as { text: string }).text)).toEqual({ ok: expect.any(Boolean) })
  })

  test('count tokens as they will be used', async () => {
    const { input_tokens } = await client.messages.countTokens({
      model,
      messages: story,
      system: 'Short.',
      tools: [tool],
    })
    const { usage } = await client.messages.create({ ...greedy, system: 'Short.', tools: [tool] })
    expect(usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0)).toBe(
      input_tokens,
    )
  })

  test('read and write the cache as marks ask for, turn after turn', async () => {
    const messages: Anthropic.MessageParam[] = []
    const system = [
      { type: 'text' as const, text: 'x-anthropic-billing-header: 1\n' },
      { type: 'text' as const, text: 'You tell very short stories.', cache_control: { type: 'ephemeral' as const } },
    ]
    let total = 0
    for (let turn = 0; turn < 12; turn++) {
      system[0] = { type: 'text', text: `x-anthropic-billing-header: ${turn}\n` }
      const question = { type: 'text' as const, text: `Part ${turn}`, cache_control: { type: 'ephemeral' as const } }
      messages.push({ role: 'user', content: [question] })
      const { content, usage } = await client.messages.create({ ...greedy, max_tokens: 4, system, messages })
      messages.push({ role: 'assistant', content })
      const read = usage.cache_read_input_tokens ?? 0
      const written = usage.cache_creation_input_tokens ?? 0
      if (turn > 0) expect(read).toBeGreaterThan(total - 8)
      expect(written).toBeGreaterThan(0)
      total = read + written + usage.input_tokens
    }
  })
})

describe('errors', () => {
  const refused = (promise: Promise<unknown>) =>
    promise.then(
      () => {
        throw new Error('was not refused')
      },
      error => error,
    )

  test('tell where an answer cannot be begun by the client', async () => {
    const messages = [...story, { role: 'assistant' as const, content: 'Once upon a' }]
    const thinking = { type: 'enabled' as const, budget_tokens: 1024 }
    const begun = await refused(client.messages.create({ ...greedy, max_tokens: 2000, messages, thinking }))
    expect(begun).toBeInstanceOf(Anthropic.BadRequestError)
    const call = { type: 'tool_use' as const, id: 'a', name: 'f', input: {} }
    const called = [...story, { role: 'assistant' as const, content: [call] }]
    expect(await refused(client.messages.create({ ...greedy, messages: called }))).toBeInstanceOf(
      Anthropic.BadRequestError,
    )
  })

  test('have their own shape and status', async () => {
    const long = await refused(
      client.messages.create({ ...greedy, messages: [{ role: 'user', content: 'dog '.repeat(3000) }] }),
    )
    expect(long).toBeInstanceOf(Anthropic.BadRequestError)
    expect(long.error).toMatchObject({ type: 'error', request_id: expect.stringMatching(/^req_/) })
    expect(long.error.error.message).toMatch(/^prompt is too long: \d+ tokens > 2048 maximum$/)
    const many = await refused(client.messages.create({ ...greedy, max_tokens: 4000 }))
    expect(many.error.error.message).toMatch(/exceed context limit: \d+ \+ 4000 > 2048/)
    const source = { type: 'base64' as const, media_type: 'image/png' as const, data: 'AAAA' }
    const image = await refused(
      client.messages.create({ ...greedy, messages: [{ role: 'user', content: [{ type: 'image', source }] }] }),
    )
    expect(image.error.error).toMatchObject({
      type: 'invalid_request_error',
      message: expect.stringContaining('image'),
    })
    const stranger = new Anthropic({ baseURL: server.url, apiKey: 'wrong', maxRetries: 0 })
    expect(await refused(stranger.messages.create(greedy))).toBeInstanceOf(Anthropic.AuthenticationError)
    const missing = await refused(client.messages.create({ ...greedy, max_tokens: undefined as unknown as number }))
    expect(missing).toBeInstanceOf(Anthropic.BadRequestError)
    expect(missing.error.error.message).toContain('max_tokens')
  })
})

describe('models', () => {
  test('are listed in the shape of this API', async () => {
    const { data } = await client.models.list()
    expect(data).toMatchObject([{ type: 'model', display_name: expect.any(String) }])
    expect(await client.models.retrieve(data[0].id)).toMatchObject({ id: data[0].id, type: 'model' })
  })
})
