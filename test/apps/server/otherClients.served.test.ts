// What clients send that is none of the server's making: tools of the APIs' makers, images in old turns, habits of curl.
import { afterEach, describe, expect, test } from 'vitest'
import { ABSENT_IMAGE } from '#moeflux/apps/server/absentImages.js'
import { type RunningServer, type ServeOptions, serve } from '#moeflux/apps/server/serve.js'
import {
  answering,
  type ScriptedModel,
  type ScriptedOptions,
  scriptedModel,
} from '../../support/models/scriptedModel.js'
import { demoTokenizer } from '../../support/textTools.js'
import { postJson } from './sse.js'

const tokenizer = await demoTokenizer()

let opened: { scripted: ScriptedModel; server: RunningServer } | null = null
afterEach(async () => {
  await opened?.server.stop(0)
  await opened?.scripted.model.close()
  opened = null
})

async function open(options: ServeOptions = {}, model: Partial<ScriptedOptions> = {}) {
  const prompts: string[] = []
  const notices: string[] = []
  const script = answering(tokenizer, prompt => {
    prompts.push(prompt)
    return 'Yes.'
  })
  const scripted = await scriptedModel({ script, ...model })
  const server = await serve(scripted.model, { port: 0, onLog: line => notices.push(line), ...options })
  opened = { scripted, server }
  return { url: server.url, prompts, notices }
}

const ask = { messages: [{ role: 'user', content: 'Hi' }] }

test('leaves out what it does not know instead of null: citations of text', async () => {
  const { url } = await open()
  const { content } = await (await postJson(`${url}/v1/messages`, { ...ask, max_tokens: 9 })).json()
  expect(content).toEqual([{ type: 'text', text: 'Yes.' }])
})

describe('tools that are no functions', () => {
  test('of types that clients run themselves are shown to the model, with what they take', async () => {
    const { url, prompts } = await open()
    const tools = [
      { type: 'bash_20250124', name: 'bash' },
      { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool', max_characters: 9 },
      { type: 'memory_20250818', name: 'memory' },
    ]
    const response = await postJson(`${url}/v1/messages`, { ...ask, max_tokens: 9, tools })
    expect(response.status).toBe(200)
    for (const word of ['bash', 'restart', 'str_replace_based_edit_tool', 'insert_line', 'memory', 'old_path']) {
      expect(prompts.at(-1)).toContain(`"${word}"`)
    }
  })

  test.each([
    [
      '/v1/messages',
      { max_tokens: 9, tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
      'web_search_20250305',
    ],
    [
      '/v1/messages',
      { max_tokens: 9, tools: [{ type: 'code_execution_20250825', name: 'x' }] },
      'code_execution_20250825',
    ],
    ['/v1/responses', { input: 'Hi', tools: [{ type: 'web_search' }] }, 'web_search'],
    ['/v1/responses', { input: 'Hi', tools: [{ type: 'code_interpreter', container: {} }] }, 'code_interpreter'],
    ['/v1/responses', { input: 'Hi', tools: [{ type: 'file_search', vector_store_ids: [] }] }, 'file_search'],
  ])('of types that only an API’s maker runs are left out of %s, and that is said: %j', async (path, body, type) => {
    const { url, prompts, notices } = await open()
    const response = await postJson(url + path, { ...ask, ...body })
    expect(response.status).toBe(200)
    expect(prompts.at(-1)).not.toContain(type)
    expect(notices.join('\n')).toContain(`the tool '${type}'`)
  })

  test('write no lines of their own into the log', async () => {
    const { url, notices } = await open()
    const type = `web_search_\n2026 all is well\u001b[2J\u009b2J\u2028${'x'.repeat(1e5)}`
    const response = await postJson(`${url}/v1/messages`, { ...ask, max_tokens: 9, tools: [{ type, name: 'x' }] })
    expect(response.status).toBe(200)
    expect(notices.join('')).toContain('web_search_\\u000a2026 all is well\\u001b[2J\\u009b2J\\u2028xxx')
    expect(notices.join('')).not.toMatch(/\p{Cc}/u)
    expect(notices.join('').length).toBeLessThan(10_000)
  })

  test.each([
    [
      '/v1/messages',
      { ...ask, max_tokens: 9, tools: [{ type: 'teleport_1', name: 'x' }] },
      "no tools of type 'teleport_1'",
    ],
    ['/v1/responses', { input: 'Hi', tools: [{ type: 'teleport' }] }, "got 'teleport'"],
  ])('of unknown types are refused by %s, with the reason', async (path, body, reason) => {
    const { url } = await open()
    const response = await postJson(url + path, body)
    expect([response.status, (await response.json()).error.message]).toEqual([400, expect.stringContaining(reason)])
  })
})

describe('an image in a conversation', () => {
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aGk=' } }
  const bodies: [string, object][] = [
    [
      '/v1/chat/completions',
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'image_url', image_url: { url: 'data:,' } },
              { type: 'text', text: 'See?' },
            ],
          },
        ],
      },
    ],
    [
      '/v1/responses',
      {
        input: [
          {
            role: 'user',
            content: [
              { type: 'input_image', image_url: 'x' },
              { type: 'input_text', text: 'See?' },
            ],
          },
        ],
      },
    ],
    ['/v1/messages', { max_tokens: 9, messages: [{ role: 'user', content: [image, { type: 'text', text: 'See?' }] }] }],
    [
      '/v1/messages',
      {
        max_tokens: 9,
        messages: [
          { role: 'user', content: 'Look' },
          { role: 'assistant', content: [{ type: 'tool_use', id: 't', name: 'look', input: {} }] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: [image] }] },
        ],
      },
    ],
    ['/api/chat', { stream: false, messages: [{ role: 'user', content: 'See?', images: ['aGk='] }] }],
    ['/api/generate', { stream: false, prompt: 'See?', images: ['aGk='] }],
  ]

  test.each(bodies)('is refused by %s, or has a line in its place', async (path, body) => {
    const strict = await open()
    const refused = await postJson(strict.url + path, body)
    expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining('image')])
    await opened?.server.stop(0)
    await opened?.scripted.model.close()
    const { url, prompts } = await open({ images: 'describe-absent' })
    expect((await postJson(url + path, body)).status).toBe(200)
    expect(prompts.at(-1)).toContain(ABSENT_IMAGE)
  })
})

describe('habits of others', () => {
  test('say -1 where there is no limit', async () => {
    const { url } = await open()
    for (const [path, body] of [
      ['/v1/chat/completions', { ...ask, max_tokens: -1 }],
      ['/v1/chat/completions', { ...ask, max_completion_tokens: -1 }],
      ['/v1/completions', { prompt: 'Hi', max_tokens: -1 }],
    ] as const) {
      const response = await postJson(url + path, body)
      expect([path, response.status]).toEqual([path, 200])
    }
    expect((await postJson(`${url}/v1/chat/completions`, { ...ask, max_tokens: -2 })).status).toBe(400)
  })

  test('send JSON as a form, as curl does, or without a word', async () => {
    const { url } = await open()
    const send = (headers: Record<string, string>) =>
      fetch(`${url}/v1/chat/completions`, {
        method: 'POST',
        headers,
        body: new TextEncoder().encode(JSON.stringify(ask)),
      })
    expect((await send({ 'content-type': 'application/x-www-form-urlencoded' })).status).toBe(200)
    expect((await send({})).status).toBe(200)
    expect((await send({ 'content-type': 'text/plain' })).status).toBe(415)
    const foreign = { 'content-type': 'application/x-www-form-urlencoded', origin: 'http://evil.example' }
    expect((await send(foreign)).status).toBe(403) // a page of others cannot make use of that
  })

  test('ask how long a context may be', async () => {
    const { url } = await open({}, { contextLength: 512 })
    expect(await (await fetch(`${url}/v1/models`)).json()).toMatchObject({
      data: [{ context_length: 512, max_model_len: 512 }],
    })
    const anthropic = await fetch(`${url}/v1/models`, { headers: { 'anthropic-version': '2023-06-01' } })
    expect(await anthropic.json()).toMatchObject({ data: [{ max_input_tokens: 512 }] })
  })

  test('ask for embeddings: the mean over tokens, of length 1, whatever shape the input has', async () => {
    const { url, notices } = await open()
    const embed = async (body: object) => await (await postJson(`${url}/v1/embeddings`, body)).json()
    // 64 tokens are a chunk: the sum of rows [token, tokens before the chunk] is [100 * 9, 36 * 64].
    const ids = new Array(100).fill(9)
    const [x, y] = [900 / Math.hypot(900, 2304), 2304 / Math.hypot(900, 2304)]
    const usage = { prompt_tokens: 101, total_tokens: 101 }
    const body = await embed({ model: 'm', input: [ids, [5]] })
    expect(body).toEqual({ object: 'list', model: 'm', usage, data: [expect.anything(), expect.anything()] })
    expect(body.data[0]).toMatchObject({ object: 'embedding', index: 0 })
    expect(body.data[0].embedding[0]).toBeCloseTo(x, 6)
    expect(body.data[0].embedding[1]).toBeCloseTo(y, 6)
    expect(body.data[1]).toEqual({ object: 'embedding', index: 1, embedding: [1, 0] })
    expect(notices.at(-1)).toMatch(/^2 embeddings, 101 tokens · .* tok\/s$/)
    const [inBase64] = (await embed({ input: [5], encoding_format: 'base64', dimensions: 2 })).data
    expect(inBase64.embedding).toBe(Buffer.from(Float32Array.of(1, 0).buffer).toString('base64'))
    expect((await embed({ input: 'Hi <|im_end|>' })).usage.prompt_tokens).toBeGreaterThan(4) // which is text
  })

  test('are told what is wrong with an input by its name, before any of them is evaluated', async () => {
    const { url } = await open({}, { contextLength: 64 })
    const refused = async (body: object, path = '/v1/embeddings') => {
      const response = await postJson(`${url}${path}`, body)
      return { status: response.status, error: (await response.json()).error }
    }
    const tooLong = { code: 'context_length_exceeded', param: 'input', message: expect.stringContaining('has 65') }
    expect(await refused({ input: [[1], new Array(65).fill(1)] })).toMatchObject({ status: 400, error: tooLong })
    expect(opened?.scripted.evaluated()).toBe(0)
    for (const [field, value] of [
      ...[
        ['input', ''],
        ['input', []],
        ['input', [[]]],
        ['input', ['a', 5]],
        ['input', { text: 'a' }],
      ],
      ...[
        ['dimensions', 1],
        ['dimensions', 0],
        ['encoding_format', 'int8'],
      ],
    ] as const) {
      const { status, error } = await refused({ input: 'a', [field]: value })
      expect([status, error.param?.split('.')[0]], `${field}: ${JSON.stringify(value)}`).toEqual([400, field])
    }
    expect(await refused({ input: [[8192]] })).toMatchObject({ status: 400, error: { code: 'bad_token' } })
    const inWords = { input: 'a dog '.repeat(80), truncate: false }
    expect(await refused(inWords, '/api/embed')).toEqual({
      status: 400,
      error: expect.stringContaining('maximum context'),
    })
    const cut = await (await postJson(`${url}/api/embed`, { input: 'a dog '.repeat(80) })).json()
    expect(cut).toMatchObject({ embeddings: [[expect.any(Number), expect.any(Number)]], prompt_eval_count: 64 })
    expect(opened?.scripted.alive()).toEqual({ sequences: 0, held: 0 })
  })
})

test('says of a model without a tokenizer that it has none, wherever text is asked for', async () => {
  const warnings: string[] = []
  const { url } = await open({ onWarning: line => warnings.push(line) }, { withTokenizer: false })
  for (const [path, body] of [
    ['/v1/chat/completions', ask],
    ['/v1/completions', { prompt: 'Hi' }],
    ['/v1/completions', { prompt: [1, 2] }],
    ['/v1/messages', { ...ask, max_tokens: 9 }],
    ['/v1/messages/count_tokens', ask],
    ['/v1/responses', { input: 'Hi' }],
    ['/api/chat', ask],
    ['/v1/embeddings', { input: 'Hi' }],
    ['/api/embed', { input: 'Hi' }],
  ] as const) {
    const response = await postJson(url + path, body)
    expect([path, response.status, await response.text()]).toEqual([
      path,
      501,
      expect.stringContaining('has no tokenizer.json'),
    ])
  }
  expect(warnings).toEqual([]) // no stacks in the log
})
