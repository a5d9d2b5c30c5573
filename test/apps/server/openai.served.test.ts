// The official `openai` package against a server process on the demo model: every endpoint and option.
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type ServerProcess, startServer } from './serverProcess.js'

let server: ServerProcess
let client: OpenAI

beforeAll(async () => {
  server = await startServer([], { MOEFLUX_API_KEY: 'secret' })
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'secret', maxRetries: 0 })
})
afterAll(() => server?.stop())
afterEach(() => server.idle())

const model = 'demo'
const story = [{ role: 'user' as const, content: 'Tell me a story about a little dog' }]
const greedy = { model, messages: story, temperature: 0, max_tokens: 12 }
const add = {
  type: 'function' as const,
  function: {
    name: 'add',
    strict: true,
    parameters: {
      type: 'object',
      properties: { a: { type: 'integer', minimum: 0, maximum: 9 }, b: { enum: [1, 2] } },
      required: ['a', 'b'],
      additionalProperties: false,
    },
  },
}
const flag = {
  type: 'object',
  properties: { ok: { type: 'boolean' } },
  required: ['ok'],
  additionalProperties: false,
}

describe('models', () => {
  test('are listed and found', async () => {
    const list = await client.models.list()
    expect(list.data).toHaveLength(1)
    const { id } = list.data[0]
    expect(await client.models.retrieve(id)).toMatchObject({ id, object: 'model', owned_by: 'moeflux' })
    await expect(client.models.retrieve('other')).rejects.toMatchObject({ status: 404, code: 'model_not_found' })
  })
})

describe('chat completions', () => {
  test('tell how far a prompt is and what the answer took, to those who ask', async () => {
    const ask = async (more: object) => {
      const response = await fetch(`${server.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: 'Bearer secret', 'content-type': 'application/json' },
        body: JSON.stringify({ ...greedy, stream: true, stream_options: { include_usage: true }, ...more }),
      })
      const events = (await response.text()).split('\n\n').filter(event => event.startsWith('data: {'))
      return events.map(event => JSON.parse(event.slice(6)))
    }
    const messages = [{ role: 'user', content: `Once ${'and again '.repeat(80)}` }]
    const chunks = await ask({ messages, return_progress: true })
    const told = chunks.flatMap(chunk => chunk.prompt_progress ?? [])
    const { usage, timings } = chunks.at(-1)
    const total = usage.prompt_tokens
    expect(told[0]).toEqual({ total, cache: expect.any(Number), processed: told[0].cache, time_ms: 0 })
    expect(told.at(-1)).toMatchObject({ total, processed: total })
    expect(timings).toMatchObject({ predicted_n: 12, prompt_n: total - told[0].cache, cache_n: told[0].cache })
    expect(timings.predicted_ms).toBeGreaterThan(0)
    const plain = await ask({})
    expect(plain.some(chunk => 'prompt_progress' in chunk || 'timings' in chunk)).toBe(false)
  })

  test('answer, whole and streamed, with the same text', async () => {
    const whole = await client.chat.completions.create(greedy)
    expect(whole).toMatchObject({ object: 'chat.completion', model, _request_id: expect.stringMatching(/^req_/) })
    const text = whole.choices[0].message.content as string
    expect(text.length).toBeGreaterThan(10)
    expect(whole.choices[0].finish_reason).toBe('length')
    expect(whole.usage).toMatchObject({ completion_tokens: 12 })

    const stream = await client.chat.completions.create({
      ...greedy,
      stream: true,
      stream_options: { include_usage: true },
    })
    const chunks = []
    for await (const chunk of stream) chunks.push(chunk)
    expect(chunks[0].choices[0].delta).toEqual({ role: 'assistant', content: '', refusal: null })
    expect(chunks.map(chunk => chunk.choices[0]?.delta.content ?? '').join('')).toBe(text)
    expect(chunks.at(-2)?.choices[0]).toMatchObject({ delta: {}, finish_reason: 'length' })
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 12 } })
    expect(chunks.slice(0, -1).every(chunk => chunk.usage === null)).toBe(true)
    expect(new Set(chunks.map(chunk => chunk.id)).size).toBe(1)
  })

  test('go on with an answer that was cut off', async () => {
    const begun = (await client.chat.completions.create({ ...greedy, max_tokens: 5 })).choices[0].message.content
    const goOn = async (messages: unknown[], fields = {}) => {
      const body = { ...greedy, max_tokens: 7, messages, continue_final_message: true, ...fields }
      return await client.chat.completions.create(body as typeof greedy)
    }
    const whole = await client.chat.completions.create(greedy)
    const rest = await goOn([...story, { role: 'assistant', content: begun }])
    expect(`${begun}${rest.choices[0].message.content}`).toBe(whole.choices[0].message.content)
    const thinks = { chat_template_kwargs: { enable_thinking: true }, max_tokens: 60 }
    const thought = await client.chat.completions.create({ ...greedy, ...thinks })
    const reason = (message: object) => (message as { reasoning_content?: string }).reasoning_content as string
    const cut = reason(
      (await client.chat.completions.create({ ...greedy, ...thinks, max_tokens: 6 })).choices[0].message,
    )
    const { message } = (await goOn([...story, { role: 'assistant', reasoning_content: cut }], thinks)).choices[0]
    expect(`${cut}${reason(message)}`).toBe(reason(thought.choices[0].message))
    expect(message.content?.slice(0, 20)).toBe(thought.choices[0].message.content?.slice(0, 20))
    await expect(goOn(story)).rejects.toMatchObject({ status: 400, message: expect.stringContaining('last message') })
    const inParts = [...story, { role: 'assistant', content: [{ type: 'text', text: begun }] }]
    expect((await goOn(inParts)).choices[0].message).toEqual(rest.choices[0].message)
    await expect(goOn(inParts, { response_format: { type: 'json_object' } })).rejects.toMatchObject({
      status: 400,
      param: 'messages',
      message: expect.stringContaining('the last one begins the answer, which wants no format'),
    })
    const thinking = { chat_template_kwargs: { enable_thinking: true } }
    const text = await goOn([...story, { role: 'assistant', content: begun }], thinking) // without any, then
    expect(text.choices[0].message).toEqual(rest.choices[0].message)
    const answer = thought.choices[0].message
    const both = { role: 'assistant', reasoning_content: reason(answer), content: 'Once upon a time' }
    const after = (await goOn([...story, both], { ...thinks, max_tokens: 4 })).choices[0].message
    expect(reason(after)).toBeUndefined()
    expect(answer.content?.startsWith(`Once upon a time${after.content}`)).toBe(true)
  })

  test('repeat a seed and give n choices', async () => {
    const options = { model, messages: story, max_tokens: 8, temperature: 1.2, seed: 7, n: 3 }
    const [first, second] = [
      await client.chat.completions.create(options),
      await client.chat.completions.create(options),
    ]
    const texts = first.choices.map(choice => choice.message.content)
    expect(second.choices.map(choice => choice.message.content)).toEqual(texts)
    expect(new Set(texts).size).toBeGreaterThan(1)
    expect(first.choices.map(choice => choice.index)).toEqual([0, 1, 2])
    expect(first.usage?.completion_tokens).toBe(24)
    const stream = await client.chat.completions.create({ ...options, stream: true })
    const streamed = ['', '', '']
    for await (const chunk of stream)
      for (const { index, delta } of chunk.choices) streamed[index] += delta.content ?? ''
    expect(streamed).toEqual(texts)
  })

  test('stop at sequences, follow logit_bias and penalties', async () => {
    const { choices } = await client.chat.completions.create(greedy)
    const text = choices[0].message.content as string
    const word = text.split(' ')[2]
    const stopped = await client.chat.completions.create({ ...greedy, stop: [word, 'never'] })
    expect(stopped.choices[0]).toMatchObject({ finish_reason: 'stop' })
    expect(stopped.choices[0].message.content).toBe(text.slice(0, text.indexOf(word)))
    const biased = await client.chat.completions.create({ ...greedy, max_tokens: 3, logit_bias: { '440': 100 } })
    expect(biased.choices[0].message.content).toBe('OnceOnceOnce')
    const varied = await client.chat.completions.create({
      ...greedy,
      max_completion_tokens: 3,
      logit_bias: { '440': 30 },
      presence_penalty: 2,
      frequency_penalty: 2,
      user: 'someone',
    })
    expect(varied.usage?.completion_tokens).toBe(3)
  })

  test('tell how likely tokens were', async () => {
    const { choices } = await client.chat.completions.create({
      ...greedy,
      max_tokens: 4,
      logprobs: true,
      top_logprobs: 3,
    })
    const content = choices[0].logprobs?.content ?? []
    expect(content.map(entry => entry.token).join('')).toBe(choices[0].message.content)
    for (const entry of content) {
      expect(entry.top_logprobs).toHaveLength(3)
      expect(entry.top_logprobs[0].token).toBe(entry.token) // greedy
      expect(entry.logprob).toBeLessThanOrEqual(0)
      expect(Buffer.from(entry.bytes ?? []).toString()).toBe(entry.token)
    }
  })

  test('keep to a JSON schema, to JSON, and to a grammar', async () => {
    const options = { model, messages: story, temperature: 1.5, max_tokens: 60 }
    const schema = await client.chat.completions.create({
      ...options,
      response_format: { type: 'json_schema', json_schema: { name: 'flag', schema: flag, strict: true } },
    })
    expect(JSON.parse(schema.choices[0].message.content ?? '')).toEqual({ ok: expect.any(Boolean) })
    const yes = await client.chat.completions.create({
      ...options,
      ...{ grammar: 'root ::= "yes" | "no"' },
    })
    expect(yes.choices[0].message.content).toMatch(/^(yes|no)$/)
    const object = await client.chat.completions.create({
      ...options,
      temperature: 0,
      max_tokens: 20,
      response_format: { type: 'json_object' },
    })
    expect(object.choices[0].message.content?.trimStart()).toMatch(/^\{/)
  })

  test('refuse a schema keyword that cannot be guaranteed, by its name', async () => {
    const request = client.chat.completions.create({
      ...greedy,
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'x', schema: { type: 'object', properties: { a: { not: { type: 'string' } } } } },
      },
    })
    await expect(request).rejects.toMatchObject({ status: 400, message: expect.stringContaining('not') })
  })

  test('call tools that are required or named, with arguments that fit', async () => {
    for (const tool_choice of ['required', { type: 'function', function: { name: 'add' } }] as const) {
      const { choices } = await client.chat.completions.create({
        ...greedy,
        max_tokens: 80,
        temperature: 1,
        tools: [add],
        tool_choice,
        parallel_tool_calls: false,
      })
      expect(choices[0].finish_reason).toBe('tool_calls')
      const calls = choices[0].message.tool_calls ?? []
      expect(calls).toHaveLength(1)
      expect(calls[0]).toMatchObject({ type: 'function', function: { name: 'add' } })
      const { a, b } = JSON.parse((calls[0] as { function: { arguments: string } }).function.arguments)
      expect(a).toBeGreaterThanOrEqual(0)
      expect([1, 2]).toContain(b)
    }
    await expect(
      client.chat.completions.create({
        ...greedy,
        tools: [add],
        tool_choice: { type: 'function', function: { name: 'subtract' } },
      }),
    ).rejects.toMatchObject({ status: 400, param: 'tool_choice' })
  })

  test('reuse the conversation so far, turn after turn', async () => {
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'system', content: 'You tell short stories.' }]
    let before = 0
    for (let turn = 0; turn < 12; turn++) {
      messages.push({ role: 'user', content: `Part ${turn}, please` })
      const { choices, usage } = await client.chat.completions.create({ ...greedy, messages, max_tokens: 4 })
      messages.push({ role: 'assistant', content: choices[0].message.content })
      const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0
      if (turn > 0) expect(cached).toBeGreaterThan(before - 8)
      expect(cached).toBeLessThan(usage?.prompt_tokens ?? 0)
      before = usage?.prompt_tokens ?? 0
    }
  })
})

describe('completions', () => {
  test('go on with text and with token ids', async () => {
    const options = { model, temperature: 0, max_tokens: 6 }
    const whole = await client.completions.create({ ...options, prompt: 'Once upon a', echo: true })
    expect(whole.object).toBe('text_completion')
    expect(whole.choices[0].text).toMatch(/^Once upon a time/)
    const byId = await client.completions.create({ ...options, prompt: [440, 451, 258] })
    expect(`Once upon a${byId.choices[0].text}`).toBe(whole.choices[0].text)
    const two = await client.completions.create({ ...options, prompt: ['Once upon a', 'The dog'], n: 2 })
    expect(two.choices.map(choice => choice.index)).toEqual([0, 1, 2, 3])
    const stream = await client.completions.create({ ...options, prompt: 'Once upon a', stream: true })
    let text = ''
    for await (const chunk of stream) text += chunk.choices[0]?.text ?? ''
    expect(text).toBe(byId.choices[0].text)
  })

  test('are refused by their status when streamed with an echo too', async () => {
    const schema = { type: 'object', properties: { a: { not: {} } } }
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } }
    const body = { model, prompt: 'Once upon a', echo: true, stream: true, max_tokens: 2, response_format } as const
    await expect(client.completions.create(body)).rejects.toMatchObject({ status: 400 })
  })

  test('tell how likely tokens of the answer were, and refuse to tell it of an echoed prompt', async () => {
    const options = { model, temperature: 0, max_tokens: 6, prompt: 'Once upon a', logprobs: 2 }
    const { choices } = await client.completions.create(options)
    const { tokens = [], text_offset: offsets } = choices[0].logprobs ?? {}
    expect(tokens).toHaveLength(6)
    expect(tokens.join('')).toBe(choices[0].text)
    expect(offsets).toEqual(tokens.map((_, i) => tokens.slice(0, i).join('').length))
    await expect(client.completions.create({ ...options, echo: true })).rejects.toMatchObject({
      status: 400,
      param: 'echo',
      message: expect.stringContaining('logprobs'),
    })
  })
})

describe('embeddings', () => {
  const similarity = (a: readonly number[], b: readonly number[]) => a.reduce((sum, x, i) => sum + x * b[i], 0)

  test('are vectors of length 1, nearer where texts are; as floats, and as the client asks for them', async () => {
    const input = ['The little dog ran home.', 'A small dog ran to its home.', '{"sum": [17, 4]}']
    const { data, usage } = await client.embeddings.create({ model, input }) // in base64, which the client does by itself
    const [dog, puppy, sum] = data.map(({ embedding }) => embedding)
    for (const vector of [dog, puppy, sum]) expect(similarity(vector, vector)).toBeCloseTo(1, 5)
    expect(similarity(dog, puppy)).toBeGreaterThan(similarity(dog, sum))
    expect(usage.total_tokens).toBe(usage.prompt_tokens)
    const floats = await client.embeddings.create({ model, input: input[0], encoding_format: 'float' })
    expect(floats.data[0].embedding).toEqual(dog)
  })

  test('ten at once beside an answer are as alone, and the answer as well', async () => {
    const inputs = Array.from({ length: 10 }, (_, i) => `A story about ${i} dogs and a cat`)
    const alone = await client.embeddings.create({ model, input: inputs })
    const text = (await client.chat.completions.create(greedy)).choices[0].message.content
    const [answer, ...beside] = await Promise.all([
      client.chat.completions.create(greedy),
      ...inputs.map(input => client.embeddings.create({ model, input })),
    ])
    expect(answer.choices[0].message.content).toBe(text)
    expect(beside.map(({ data }) => data[0].embedding)).toEqual(alone.data.map(({ embedding }) => embedding))
  })

  test('are given up when the client leaves', async () => {
    const leaving = new AbortController()
    const long = Array.from({ length: 2000 }, (_, i) => `${i} dogs and ${'more of them '.repeat(20)}`)
    const asked = client.embeddings.create({ model, input: long }, { signal: leaving.signal })
    setTimeout(() => leaving.abort(), 300)
    await expect(asked).rejects.toThrow('aborted')
    await server.idle() // and not when 2000 texts are read
    await expect(client.embeddings.create({ model, input: 'dog '.repeat(9000) })).rejects.toMatchObject({
      ...{ status: 400, code: 'context_length_exceeded', param: 'input' },
    })
  })
})

describe('responses', () => {
  test('answer, go on from an earlier one, and are kept', async () => {
    const options = { model, temperature: 0, max_output_tokens: 8 }
    const first = await client.responses.create({ ...options, input: 'Hello', instructions: 'Be brief.' })
    expect(first).toMatchObject({ object: 'response', status: 'incomplete', error: null })
    expect(first.incomplete_details).toEqual({ reason: 'max_output_tokens' })
    expect(first.output_text.length).toBeGreaterThan(3)
    expect(await client.responses.retrieve(first.id)).toMatchObject({ id: first.id, output: first.output })
    const second = await client.responses.create({
      ...options,
      input: [{ role: 'user', content: [{ type: 'input_text', text: 'And then?' }] }],
      instructions: 'Be brief.',
      previous_response_id: first.id,
    })
    expect(second.usage?.input_tokens).toBeGreaterThan(first.usage?.input_tokens ?? 0)
    expect(second.usage?.input_tokens_details.cached_tokens).toBeGreaterThan(0)
    expect(await client.responses.retrieve(first.id, { stream: false })).toMatchObject({ id: first.id })
    const streamed = client.responses.retrieve(first.id, { stream: true })
    await expect(streamed).rejects.toMatchObject({ status: 400, param: 'stream' })
    await client.responses.delete(first.id)
    await expect(client.responses.retrieve(first.id)).rejects.toMatchObject({ status: 404 })
    const unstored = await client.responses.create({ ...options, input: 'Hello', store: false })
    await expect(client.responses.retrieve(unstored.id)).rejects.toMatchObject({ status: 404 })
  })

  test('refuse what they would have to ignore, by its name', async () => {
    const refused = [
      ['conversation', { input: 'Hi', conversation: 'conv_1' }],
      ['conversation', { input: 'Hi', conversation: { id: 'conv_1' } }],
      ['prompt', { input: 'Hi', prompt: { id: 'pmpt_1' } }],
      ['prompt', { prompt: { id: 'pmpt_1' } }],
    ] as const
    for (const [param, fields] of refused) {
      await expect(client.responses.create({ model, ...fields })).rejects.toMatchObject({
        status: 400,
        param,
        message: expect.stringContaining(param),
      })
    }
    for (const truncation of ['auto', 'disabled', null] as const) {
      const options = { model, input: 'Hi', max_output_tokens: 2, conversation: null, prompt: null, truncation }
      expect(await client.responses.create(options)).toMatchObject({ object: 'response', truncation: 'disabled' })
    }
  })

  test('stream events in order, numbered', async () => {
    const stream = await client.responses.create({
      model,
      input: 'Hi',
      temperature: 0,
      max_output_tokens: 4,
      stream: true,
    })
    const events = []
    for await (const event of stream) events.push(event)
    expect(events.map(event => event.sequence_number)).toEqual(events.map((_, i) => i))
    expect(events.map(event => event.type).filter((type, i, all) => type !== all[i - 1])).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.incomplete',
    ])
  })

  test('call functions and keep to schemas', async () => {
    const called = await client.responses.create({
      model,
      input: 'Add',
      tools: [{ type: 'function', ...add.function }],
      tool_choice: 'required',
      parallel_tool_calls: false,
      max_output_tokens: 80,
    })
    const call = called.output.find(item => item.type === 'function_call')
    expect(called.status).toBe('completed')
    expect(call).toMatchObject({ name: 'add', status: 'completed', call_id: expect.stringMatching(/^call_/) })
    const answered = await client.responses.create({
      model,
      input: [
        { role: 'user', content: 'Add' },
        call as OpenAI.Responses.ResponseFunctionToolCall,
        { type: 'function_call_output', call_id: call?.call_id ?? '', output: '3' },
      ],
      text: { format: { type: 'json_schema', name: 'flag', schema: flag, strict: true } },
      max_output_tokens: 40,
    })
    expect(JSON.parse(answered.output_text)).toEqual({ ok: expect.any(Boolean) })
  })
})
