// The event order of each API, event by event, for an answer that thinks, speaks and calls two tools: a model that
// answers by script, behind a real socket. Also what happens to a stream when things go wrong behind it.
import { once } from 'node:events'
import { connect } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { type RunningServer, type ServeOptions, serve } from '#moeflux/apps/server/serve.js'
import { ReadError } from '#moeflux/base/errors.js'
import {
  answering,
  type ScriptedModel,
  type ScriptedOptions,
  scriptedModel,
} from '../../support/models/scriptedModel.js'
import { demoTokenizer } from '../../support/textTools.js'
import { postJson, sentEvents } from './sse.js'

const tokenizer = await demoTokenizer()
const CALLS =
  'I will add.\n</think>\n\nLet me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n' +
  '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'

let opened: { scripted: ScriptedModel; server: RunningServer } | null = null
afterEach(async () => {
  await opened?.server.stop(0)
  await opened?.scripted.model.close()
  opened = null
})

async function open(answer: string, model: Partial<ScriptedOptions> = {}, options: ServeOptions = {}) {
  const scripted = await scriptedModel({ script: answering(tokenizer, () => answer), ...model })
  const server = await serve(scripted.model, { port: 0, ...options })
  opened = { scripted, server }
  return { url: server.url, port: server.port, scripted }
}

const tools = [{ type: 'function', function: { name: 'add' } }]
const messages = [{ role: 'user', content: 'Add' }]
const thinking = { chat_template_kwargs: { enable_thinking: true } }

/** Names in place of values that differ from run to run. */
function steady(data: string): string {
  return data
    .replace(/"(chatcmpl-|msg_|resp_|rs_|fc_|call_|cmpl-|req_)\w+"/g, '"$1ID"')
    .replace(/"(created|created_at)":\d+/g, '"$1":0')
    .replace(/"signature":"[^"]{20,}"/g, '"signature":"S"')
}

describe('the transcript of', () => {
  test('chat completions', async () => {
    const { url } = await open(CALLS)
    const response = await postJson(`${url}/v1/chat/completions`, {
      model: 'm',
      messages,
      tools,
      ...thinking,
      stream: true,
      stream_options: { include_usage: true },
    })
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
    const events = await sentEvents(response)
    expect(events.every(({ event }) => event === null)).toBe(true)
    expect(events.at(-1)?.data).toBe('[DONE]')
    const chunks = events.slice(0, -1).map(({ data }) => JSON.parse(steady(data)))
    for (const { id, object, created, model } of chunks) {
      expect([id, object, created, model]).toEqual(['chatcmpl-ID', 'chat.completion.chunk', 0, 'm'])
    }
    const deltas = chunks.slice(0, -1).map(chunk => chunk.choices[0].delta)
    const joined = (key: string) => deltas.map(delta => delta[key] ?? '').join('')
    expect(deltas[0]).toEqual({ role: 'assistant', content: '', refusal: null })
    expect(joined('reasoning_content')).toBe('I will add.')
    expect(joined('content')).toBe('Let me see.')
    const kinds = deltas.map(delta => Object.keys(delta).join())
    expect(kinds.filter((kind, i) => kind !== kinds[i - 1])).toEqual([
      'role,content,refusal',
      'reasoning_content',
      'content',
      'tool_calls',
      '',
    ])
    const calls = deltas.flatMap(delta => delta.tool_calls ?? [])
    expect(calls.filter(({ id }) => id !== undefined)).toEqual([
      { index: 0, id: 'call_ID', type: 'function', function: { name: 'add', arguments: '' } },
      { index: 1, id: 'call_ID', type: 'function', function: { name: 'add', arguments: '' } },
    ])
    const argumentsOf = (wanted: number) =>
      calls.map(({ index, function: part }) => (index === wanted ? part.arguments : '')).join('')
    expect([argumentsOf(0), argumentsOf(1)]).toEqual(['{"a": 1}', '{"a": 2}'])
    expect(chunks.at(-2).choices[0]).toEqual({ index: 0, delta: {}, logprobs: null, finish_reason: 'tool_calls' })
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: expect.any(Number) } })
    expect(chunks.at(-1).usage.completion_tokens_details.reasoning_tokens).toBeGreaterThan(2)
  })

  test('messages', async () => {
    const { url } = await open(CALLS)
    const response = await postJson(`${url}/v1/messages`, {
      model: 'm',
      max_tokens: 200,
      messages,
      tools: [{ name: 'add', input_schema: { type: 'object' } }],
      thinking: { type: 'enabled', budget_tokens: 1024 },
      stream: true,
    })
    const events = await sentEvents(response)
    for (const { event, data } of events) expect(JSON.parse(data).type).toBe(event)
    const parsed = events.map(({ data }) => JSON.parse(steady(data)))
    const deltas = (type: string, key: string) =>
      parsed.map(event => (event.delta?.type === type ? event.delta[key] : '')).join('')
    expect(deltas('thinking_delta', 'thinking')).toBe('I will add.')
    expect(deltas('text_delta', 'text')).toBe('Let me see.')
    const order = parsed.map(({ type, index, content_block, delta }) =>
      [type, index, content_block?.type, delta?.type].filter(item => item !== undefined).join(' '),
    )
    expect(order.filter((line, i) => line !== order[i - 1])).toEqual([
      'message_start',
      'ping',
      'content_block_start 0 thinking',
      'content_block_delta 0 thinking_delta',
      'content_block_delta 0 signature_delta',
      'content_block_stop 0',
      'content_block_start 1 text',
      'content_block_delta 1 text_delta',
      'content_block_stop 1',
      'content_block_start 2 tool_use',
      'content_block_delta 2 input_json_delta',
      'content_block_stop 2',
      'content_block_start 3 tool_use',
      'content_block_delta 3 input_json_delta',
      'content_block_stop 3',
      'message_delta',
      'message_stop',
    ])
    expect(parsed[0].message).toMatchObject({ id: 'msg_ID', role: 'assistant', content: [], stop_reason: null })
    expect(parsed.at(-2)).toMatchObject({ delta: { stop_reason: 'tool_use', stop_sequence: null } })
  })

  test('responses', async () => {
    const { url } = await open(CALLS)
    const response = await postJson(`${url}/v1/responses`, {
      model: 'm',
      input: 'Add',
      tools: [{ type: 'function', name: 'add', parameters: {} }, { type: 'web_search' }],
      reasoning: { effort: 'medium' },
      stream: true,
    })
    const events = await sentEvents(response)
    const parsed = events.map(({ data }) => JSON.parse(steady(data)))
    expect(events.map(({ event }) => event)).toEqual(parsed.map(({ type }) => type))
    expect(parsed.map(({ sequence_number }) => sequence_number)).toEqual(parsed.map((_, i) => i))
    const order = parsed.map(({ type, output_index, item }) =>
      [type, output_index ?? '', item?.type ?? ''].join(' ').trim(),
    )
    const call = (index: number) => [
      `response.output_item.added ${index} function_call`,
      `response.function_call_arguments.delta ${index}`,
      `response.function_call_arguments.done ${index}`,
      `response.output_item.done ${index} function_call`,
    ]
    expect(order.filter((line, i) => line !== order[i - 1])).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added 0 reasoning',
      'response.content_part.added 0',
      'response.reasoning_text.delta 0',
      'response.reasoning_text.done 0',
      'response.content_part.done 0',
      'response.output_item.done 0 reasoning',
      'response.output_item.added 1 message',
      'response.content_part.added 1',
      'response.output_text.delta 1',
      'response.output_text.done 1',
      'response.content_part.done 1',
      'response.output_item.done 1 message',
      ...call(2),
      ...call(3),
      'response.completed',
    ])
    const { output, usage, status } = parsed.at(-1).response
    expect(status).toBe('completed')
    expect(output.map((item: { type: string }) => item.type)).toEqual([
      'reasoning',
      'message',
      'function_call',
      'function_call',
    ])
    expect(output[1].content[0].text).toBe('Let me see.')
    expect(usage.output_tokens_details.reasoning_tokens).toBeGreaterThan(2)
  })

  test('completions', async () => {
    const { url } = await open('unused', { script: tokens => (tokens.length < 5 ? 258 : 8185) })
    const events = await sentEvents(
      await postJson(`${url}/v1/completions`, {
        prompt: [440, 451, 258],
        max_tokens: 9,
        stream: true,
        stream_options: { include_usage: true },
      }),
    )
    const choices = events.slice(0, -2).map(({ data }) => JSON.parse(data).choices[0])
    expect(choices.map(choice => [choice.text, choice.finish_reason])).toEqual([
      [' a', null],
      [' a', null],
      ['', 'stop'],
    ])
    expect(JSON.parse(events.at(-2)?.data ?? '')).toMatchObject({
      choices: [],
      usage: { prompt_tokens: 3, completion_tokens: 2 },
    })
    expect(events.at(-1)?.data).toBe('[DONE]')
  })
})

describe('a stream', () => {
  const failing = (failAt: number, error = new Error('the disk is on fire')): Partial<ScriptedOptions> => {
    let steps = 0
    return {
      onStep: () => {
        if (++steps === failAt) throw error
      },
    }
  }
  const chat = { model: 'm', messages, stream: true }

  test.each([
    ['/v1/chat/completions', chat, null, { error: { type: 'server_error', message: 'internal error' } }],
    ['/v1/messages', { ...chat, max_tokens: 50 }, 'error', { type: 'error', error: { type: 'api_error' } }],
    ['/v1/responses', { input: 'x', stream: true }, 'response.failed', { response: { status: 'failed' } }],
  ])('of %s tells an error after its headers as an event', async (path, body, event, shape) => {
    const warnings: string[] = []
    const { url } = await open('one two three four five', failing(6), { onWarning: line => warnings.push(line) })
    const response = await postJson(url + path, body)
    expect(response.status).toBe(200)
    const events = await sentEvents(response)
    expect(events.length).toBeGreaterThan(2)
    expect(events.at(-1)?.event).toBe(event)
    expect(JSON.parse(events.at(-1)?.data ?? '')).toMatchObject(shape)
    expect(warnings.join()).toContain('the disk is on fire') // the operator learns what clients are not told
    expect((await postJson(url + path, body)).status).toBe(200)
  })

  test.each(['/v1/chat/completions', '/v1/messages', '/v1/responses'])(
    'of %s that fails before its first token has a status of its own',
    async path => {
      const { url } = await open('one', failing(1))
      const response = await postJson(url + path, { ...chat, input: 'x', max_tokens: 5 })
      expect(response.status).toBe(500)
      expect(await response.json()).toMatchObject({ error: { message: 'internal error' } })
    },
  )

  test.each(['/v1/chat/completions', '/v1/messages', '/v1/responses', '/v1/completions'])(
    'of %s tells of a broken file by its name, and the log where it lies',
    async path => {
      const file = '/home/some body/models (old)/qwen/layer-07.bin'
      for (const failAt of [1, 6]) {
        const warnings: string[] = []
        const cause = new Error(`EIO: i/o error, read '${file}'`)
        const error = new ReadError(file, 4096, 512, `EIO: i/o error, open '${file}' for /var/lib/x/y.bin`, { cause })
        const onWarning = (line: string) => void warnings.push(line)
        const { url } = await open('one two three four five', failing(failAt, error), { onWarning })
        const input = path === '/v1/completions' ? { prompt: 'x' } : { input: 'x' }
        const response = await postJson(url + path, { ...chat, ...input, max_tokens: 50 })
        const text = await response.text()
        expect(response.status).toBe(failAt === 1 ? 500 : 200)
        expect(text).toContain('layer-07.bin')
        expect(text).not.toMatch(/home|some body|models|qwen|var\/lib|node_modules|\.js:/)
        expect(warnings.join()).toContain(file)
        await opened?.server.stop(0)
        await opened?.scripted.model.close()
        opened = null
      }
    },
  )

  test('is kept alive by comments while the prompt takes its time', async () => {
    let slow = true
    const onStep = () =>
      new Promise<void>(resolve => setTimeout(resolve, slow ? 3_400 : 0)).then(() => void (slow = false))
    const { url } = await open('one', { onStep }, { keepAliveMs: 50 })
    const text = await (await postJson(`${url}/v1/chat/completions`, chat)).text()
    expect(text).toMatch(/^: keep-alive\n\n(: keep-alive\n\n)*data: \{/)
    expect(text).toContain('[DONE]')
  })

  test('stops the work when its client leaves, in the prompt and in the answer', async () => {
    for (const leaveAt of [1, 4]) {
      let steps = 0
      let aborted = false
      const controller = new AbortController()
      const { url, scripted } = await open('one two three four five six', {
        async onStep(_, signal) {
          if (++steps < leaveAt) return
          controller.abort()
          await new Promise<void>(resolve => {
            signal?.addEventListener('abort', () => resolve())
            setTimeout(resolve, 5_000).unref()
          })
          aborted = signal?.aborted ?? false
        },
      })
      const request = { method: 'POST', headers: { 'content-type': 'application/json' }, signal: controller.signal }
      await expect(
        fetch(`${url}/v1/chat/completions`, { ...request, body: JSON.stringify(chat) }).then(response =>
          response.text(),
        ),
      ).rejects.toThrow()
      await expect.poll(() => scripted.alive().sequences).toBe(0)
      expect(aborted).toBe(true)
      expect(steps).toBe(leaveAt)
      expect(await (await fetch(`${url}/metrics`)).text()).toContain('moeflux_requests_active 0')
      await opened?.server.stop(0)
    }
  })

  test('that nobody reads does not run on, and is cut off', async () => {
    let evaluated = 0
    const { port, scripted, url } = await open(
      '',
      { script: () => 440, contextLength: 200_000, onStep: () => void evaluated++ },
      { readerTimeoutMs: 700 },
    )
    const socket = connect({ port, host: '127.0.0.1' })
    socket.pause()
    const body = JSON.stringify({ ...chat, logprobs: true, top_logprobs: 20 })
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    )
    socket.on('error', () => {})
    await expect.poll(() => evaluated).toBeGreaterThan(1)
    await expect.poll(() => scripted.alive().sequences).toBe(0)
    expect(evaluated).toBeLessThan(20_000)
    expect(await (await fetch(`${url}/metrics`)).text()).toContain('moeflux_requests_active 0')
    socket.destroy()
    if (!socket.closed) await once(socket, 'close')
  })

  test('ends with an error event when the server stops', async () => {
    const { url } = await open('one two', {
      onStep: () => new Promise(resolve => setTimeout(resolve, 30)),
      script: () => 440,
    })
    const response = await postJson(`${url}/v1/messages`, { ...chat, max_tokens: 2000 })
    const stopped = opened?.server.stop(100)
    const events = await sentEvents(response)
    expect(events.at(-1)).toMatchObject({ event: 'error' })
    expect(JSON.parse(events.at(-1)?.data ?? '').error).toEqual({
      type: 'overloaded_error',
      message: 'the server is shutting down',
    })
    await stopped
  })

  test('that takes too long ends with a time-out', async () => {
    const { url } = await open(
      'one two',
      { onStep: () => new Promise(resolve => setTimeout(resolve, 30)), script: () => 440 },
      { requestTimeoutMs: 1_500 }, // on a busy machine, too, the stream has begun by then
    )
    const events = await sentEvents(await postJson(`${url}/v1/chat/completions`, chat))
    expect(JSON.parse(events.at(-1)?.data ?? '').error).toMatchObject({ type: 'timeout_error' })
    const whole = await postJson(`${url}/v1/chat/completions`, { ...chat, stream: false })
    expect(whole.status).toBe(408)
  })
})

describe('thinking', () => {
  test.each([
    ['/v1/messages', { thinking: { type: 'enabled', budget_tokens: 3 }, max_tokens: 12 }],
    ['/v1/chat/completions', { ...thinking, thinking_budget: 3, max_tokens: 12 }],
  ])('ends within its budget in %s', async (path, options) => {
    const { url } = await open('', { script: () => 440 })
    const answer = await (await postJson(url + path, { messages, temperature: 0, ...options })).json()
    if (path === '/v1/messages') {
      expect(answer.content).toMatchObject([
        { type: 'thinking', thinking: 'OnceOnceOnce' },
        { type: 'text', text: 'Once'.repeat(8) },
      ])
    } else {
      const { message } = answer.choices[0]
      expect(message).toMatchObject({ reasoning_content: 'OnceOnceOnce', content: 'Once'.repeat(8) })
    }
  })
})

describe('coding agents', () => {
  test('get answers to all that they send along', async () => {
    const { url } = await open('fine')
    const shell = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] }
    const messagesRequest = {
      model: 'claude',
      max_tokens: 100,
      metadata: { user_id: 'u' },
      thinking: { type: 'adaptive' },
      output_config: { effort: 'high' },
      context_management: { edits: [] },
      system: [
        { type: 'text', text: 'x-anthropic-billing-header: 1;' },
        { type: 'text', text: 'You are an agent.', cache_control: { type: 'ephemeral', ttl: '1h' } },
      ],
      tools: [{ name: 'Bash', input_schema: { $schema: 'http://json-schema.org/draft-07/schema#', ...shell } }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'ls', cache_control: { type: 'ephemeral' } }] },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'hm', signature: 'x' },
            { type: 'tool_use', id: 'toolu_1', name: 'Bash', input: { command: 'ls' } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'a b', is_error: false }] },
      ],
    }
    const responsesRequest = {
      model: 'gpt',
      instructions: 'You are an agent.',
      store: false,
      include: ['reasoning.encrypted_content'],
      prompt_cache_key: 'k',
      parallel_tool_calls: false,
      tool_choice: 'auto',
      reasoning: { effort: 'medium', summary: 'auto' },
      text: { verbosity: 'low' },
      tools: [
        { type: 'function', name: 'shell', strict: false, parameters: shell },
        { type: 'web_search', external_web_access: false },
      ],
      input: [
        { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Be careful' }] },
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'ls' }] },
        { type: 'reasoning', summary: [], content: null, encrypted_content: null },
        { type: 'function_call', name: 'shell', arguments: '{"command":"ls"}', call_id: 'call_1' },
        { type: 'function_call_output', call_id: 'call_1', output: 'a b' },
      ],
    }
    for (const [path, body] of [
      ['/v1/messages?beta=true', messagesRequest],
      ['/v1/responses', responsesRequest],
    ] as const) {
      const response = await postJson(url + path, body)
      expect([response.status, await response.text()]).toEqual([200, expect.stringContaining('fine')])
    }
  })
})

describe('a page', () => {
  test('of an allowed origin may call, after asking', async () => {
    const { url } = await open('one', {}, { corsOrigins: ['http://good.example'], apiKey: 'secret' })
    const path = `${url}/v1/chat/completions`
    const ask = (origin: string) =>
      fetch(path, { method: 'OPTIONS', headers: { origin, 'access-control-request-headers': 'authorization' } })
    const asked = await ask('http://good.example')
    expect(asked.status).toBe(204)
    expect(asked.headers.get('access-control-allow-origin')).toBe('http://good.example')
    expect(asked.headers.get('access-control-allow-headers')).toBe('authorization')
    expect((await ask('http://evil.example')).status).toBe(403)
    const headers = { origin: 'http://good.example', authorization: 'Bearer secret' }
    const answer = await postJson(path, { messages, stream: true }, headers)
    expect(answer.status).toBe(200)
    expect(answer.headers.get('access-control-allow-origin')).toBe('http://good.example')
    expect((await sentEvents(answer)).at(-1)?.data).toBe('[DONE]')
    const refused = await postJson(path, { messages }, { ...headers, authorization: 'Bearer wrong' })
    expect(refused.status).toBe(401)
    expect(refused.headers.get('access-control-allow-origin')).toBe('http://good.example')
  })
})

describe('the queue', () => {
  test('turns away what is too much, with a time to come back', async () => {
    let goOn = () => {}
    const held = new Promise<void>(resolve => {
      goOn = resolve
    })
    const script = (tokens: readonly number[]) => (tokens.length < 40 ? 440 : 8185)
    const { url } = await open('', { onStep: () => held, script }, { parallel: 2, maxQueue: 1 })
    const send = () => postJson(`${url}/v1/chat/completions`, { messages, max_tokens: 20 })
    const sent = Array.from({ length: 8 }, send)
    let settled = 0
    for (const each of sent) void each.then(() => settled++)
    await expect.poll(() => settled).toBe(5)
    goOn()
    const answers = await Promise.all(sent)
    const statuses = answers.map(({ status }) => status).sort()
    expect(statuses).toEqual([200, 200, 200, 429, 429, 429, 429, 429])
    const refused = answers.find(({ status }) => status === 429) as Response
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(await refused.json()).toMatchObject({ error: { type: 'rate_limit_error', code: 'queue_full' } })
    expect((await send()).status).toBe(200)
  })
})
