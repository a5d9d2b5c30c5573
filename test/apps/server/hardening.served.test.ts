// What must not break the server, against a real process: every bad request gets its status in the shape of its API, and
// after each one the server answers the next request and nothing is left running.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { demoModel } from '../../support/models/models.js'
import { rawHead, rawRequest } from './rawRequest.js'
import { type ServerProcess, startServer } from './serverProcess.js'
import { postJson } from './sse.js'

const KEY = 'a key'
const HOSTILE_TEMPLATE = `{%- set first = messages[0].content -%}
{%- if first == 'loop' -%}{%- for i in range(10 ** 9) -%}x{%- endfor -%}
{%- elif first == 'nested' -%}
{%- for a in range(9999) -%}{%- for b in range(9999) -%}{%- for c in range(9999) -%}{%- endfor -%}{%- endfor -%}{%- endfor -%}
{%- elif first == 'output' -%}{%- for i in range(200000) -%}{{ 'x' * 1000 }}{%- endfor -%}
{%- else -%}{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}<|im_start|>assistant
{% endif -%}`

const folder = mkdtempSync(join(tmpdir(), 'moeflux-hostile-'))
let server: ServerProcess

beforeAll(async () => {
  cpSync(demoModel, folder, { recursive: true })
  writeFileSync(join(folder, 'chat_template.jinja'), HOSTILE_TEMPLATE)
  server = await start('--max-body', '1MiB', '--receive-timeout', '1')
})
afterAll(async () => {
  await server?.stop()
  rmSync(folder, { recursive: true, force: true })
})
afterEach(async () => {
  const next = await post('/v1/chat/completions', chat)
  expect(next.status).toBe(200)
  await next.json()
  await server.idle()
})

const start = (...limits: string[]) => {
  const args = ['--model', folder, '--context', '1024', '--parallel', '4', '--max-queue', '120']
  return startServer([...args, ...limits], { MOEFLUX_API_KEY: KEY })
}
const headers = { authorization: `Bearer ${KEY}` }
const post = (path: string, body: unknown, more: Record<string, string> = {}) =>
  postJson(server.url + path, body, { ...headers, ...more })
const chat = { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2 }
const rawPost = (more: Record<string, string>) =>
  rawHead('POST', '/v1/chat/completions', { 'Content-Type': 'application/json', 'X-Api-Key': KEY, ...more })

type Body = Record<string, unknown>
const API_BODIES: Record<string, Body> = {
  '/v1/chat/completions': chat,
  '/v1/completions': { prompt: 'Hi', max_tokens: 2 },
  '/v1/responses': { input: 'Hi', max_output_tokens: 2 },
  '/v1/messages': chat,
}

async function expectRefusal(path: string, response: Response, status = 400): Promise<string> {
  const body = await response.json()
  expect([response.status, body]).toEqual([status, expect.anything()])
  if (path.startsWith('/v1/messages')) {
    expect(body).toEqual({
      type: 'error',
      error: { type: expect.stringMatching(/^\w+$/), message: expect.any(String) },
      request_id: expect.stringMatching(/^req_/),
    })
  } else {
    const error = { message: expect.any(String), type: expect.stringMatching(/^\w+$/) }
    expect(body).toEqual({
      error: expect.objectContaining({ ...error, param: body.error.param, code: body.error.code }),
    })
  }
  return body.error.message
}

describe.each(Object.entries(API_BODIES))('a body for %s', (path, good) => {
  test('that is huge, deep, no JSON, no object, no UTF-8 or of another type is refused', async () => {
    const huge = JSON.stringify({ ...good, padding: 'x'.repeat(2 ** 20) })
    expect(await expectRefusal(path, await post(path, huge), 413)).toContain('1048576')
    const cases = ['', '{', 'null', '[]', '"x"', '{"a":1}', `${'['.repeat(100_000)}`, `{"a":${'{"a":'.repeat(300)}1`]
    cases.push(JSON.stringify({ ...good, temperature: 7 }).replace(':7', ':1e999'))
    for (const body of cases) await expectRefusal(path, await post(path, body))
    const bytes = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')])
    await expectRefusal(path, await post(path, bytes.toString('latin1'), { 'content-type': 'text/plain' }), 415)
    const request = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body: bytes }
    expect(await expectRefusal(path, await fetch(server.url + path, request))).toContain('UTF-8')
  })

  test('needs POST', async () => {
    const response = await fetch(server.url + path, { headers })
    expect(response.headers.get('allow')).toBe('POST')
    await expectRefusal(path, response, 405)
  })
})

const many = (count: number, make: (i: number) => unknown) => Array.from({ length: count }, (_, i) => make(i))
const tool = (name: string, parameters: unknown = {}) => ({ type: 'function', function: { name, parameters } })
const format = (schema: unknown) => ({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } })
const content = (value: unknown) => ({ messages: [{ role: 'user', content: value }] })

const REFUSED: [path: string, fields: Body[], names: string][] = [
  ['/v1/chat/completions', [0, -1, 17, 1.5, '2', 1e99].map(n => ({ n })), 'n'],
  ['/v1/chat/completions', [0, -2, 1.5, '5', 1e308, 5000, true].map(max_tokens => ({ max_tokens })), ''],
  ['/v1/chat/completions', [-0.1, 2.1, 'hot', []].map(temperature => ({ temperature })), 'temperature'],
  ['/v1/chat/completions', [0, -1, 1.1, '1'].map(top_p => ({ top_p })), 'top_p'],
  [
    '/v1/chat/completions',
    [5, {}, many(17, () => 'x'), many(10_000, String), 'x'.repeat(5000)].map(stop => ({ stop })),
    'stop',
  ],
  [
    '/v1/chat/completions',
    [
      { a: 1 },
      { '-1': 1 },
      { '1': 101 },
      { '1': '1' },
      { '999999': 1 },
      Object.fromEntries(many(10_000, i => [i, 1]) as [number, number][]),
    ].map(logit_bias => ({ logit_bias })),
    'logit_bias',
  ],
  [
    '/v1/chat/completions',
    [
      5,
      [{}],
      [tool('')],
      [tool('a b')],
      [tool('x'.repeat(200))],
      [{ type: 'web_search' }],
      many(10_000, i => tool(`t${i}`)),
    ].map(tools => ({
      tools,
    })),
    'tools',
  ],
  [
    '/v1/chat/completions',
    [{ tool_choice: 'required' }, { tool_choice: { type: 'function', function: { name: 'x' } } }],
    'tool_choice',
  ],
  ['/v1/chat/completions', [{ top_logprobs: 21, logprobs: true }, { top_logprobs: -1 }], 'top_logprobs'],
  [
    '/v1/chat/completions',
    [{ messages: [] }, { messages: 'Hi' }, { messages: [null] }, { messages: [{ content: 'x' }] }],
    'messages',
  ],
  ['/v1/chat/completions', [{ messages: [{ role: 'wizard', content: 'x' }] }], 'wizard'],
  ['/v1/chat/completions', [content(5), content({}), content([5]), content([{ type: 'text' }])], 'content'],
  ['/v1/chat/completions', [content([{ type: 'image_url', image_url: { url: 'data:,' } }])], 'image_url'],
  ['/v1/chat/completions', [content('dog '.repeat(2000))], 'maximum context length is 1024'],
  ['/v1/chat/completions', [{ grammar: 'root ::= (' }, { grammar: 'x' }, { grammar: 5 }], ''],
  ['/v1/chat/completions', [format({ type: 'object', properties: { a: { not: { type: 'string' } } } })], 'not'],
  ['/v1/chat/completions', [format({ $ref: 'https://example.com/schema' }), format({ $ref: '#/nowhere' })], '$ref'],
  [
    '/v1/chat/completions',
    [format({ type: 'string', pattern: '(a' }), format({ type: 'string', pattern: '(?=a)b' })],
    'pattern',
  ],
  ['/v1/chat/completions', [{ seed: 1.5 }, { seed: 'x' }], 'seed'],
  ['/v1/chat/completions', [{ model: '' }, { model: 5 }], 'model'],
  [
    '/v1/completions',
    [{ prompt: [] }, { prompt: '' }, { prompt: [-1] }, { prompt: ['a', 1] }, { prompt: null }],
    'prompt',
  ],
  ['/v1/completions', [{ prompt: [99_999_999] }], '99999999'],
  ['/v1/completions', [{ best_of: 3 }], 'best_of'],
  ['/v1/completions', [0, 5].map(logprobs => ({ echo: true, logprobs })), 'echo'],
  ['/v1/completions', [{ prompt: 'dog '.repeat(2000) }], 'maximum context length'],
  ['/v1/responses', [{ previous_response_id: 5 }, { input: 5 }, { input: [{ type: 'message' }] }], ''],
  ['/v1/responses', [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] }], 'input_image'],
  ['/v1/responses', [{ background: true }], 'background'],
  ['/v1/responses', [{ input: 'dog '.repeat(2000) }], 'maximum context length'],
  ['/v1/messages', [{ max_tokens: 0 }, { max_tokens: null }, { max_tokens: '5' }], 'max_tokens'],
  ['/v1/messages', [{ temperature: 1.1 }, { temperature: -1 }], 'temperature'],
  ['/v1/messages', [{ stop_sequences: 'x' }, { stop_sequences: many(10_000, String) }], 'stop_sequences'],
  ['/v1/messages', [{ tools: [{ name: 'a b' }] }, { tools: many(10_000, i => ({ name: `t${i}` })) }], 'tools'],
  ['/v1/messages', [{ tools: [{ type: 'teleport', name: 'x' }, { type: 'bash_1' }] }], 'teleport'],
  ['/v1/messages', [content([{ type: 'image', source: {} }])], 'image'],
  ['/v1/messages', [content('dog '.repeat(2000))], 'prompt is too long'],
  ['/v1/messages', [{ max_tokens: 5000 }], 'context limit'],
]

describe('a request past the edges', () => {
  test.each(REFUSED)('of %s is refused: %#', async (path, fields, names) => {
    for (const field of fields) {
      const message = await expectRefusal(path, await post(path, { ...API_BODIES[path], ...field }))
      expect(message, JSON.stringify(field).slice(0, 200)).toContain(names)
    }
  })

  test('of the context is told how long the prompt is, and the answer where that is what is too much', async () => {
    const ask = (tokens: number, max_tokens: number) =>
      post('/v1/completions', { prompt: Array(tokens).fill(440), max_tokens })
    for (const tokens of [1024, 1500]) {
      const message = await expectRefusal('/v1/completions', await ask(tokens, 3))
      expect(message).toContain(`the prompt has ${tokens} tokens, which leaves none for the answer`)
    }
    const message = await expectRefusal('/v1/completions', await ask(1022, 3))
    expect(message).toContain('you requested 1025 tokens (1022 in the prompt, 3 for the answer)')
    expect((await ask(1022, 2)).status).toBe(200)
  })

  test('at the edges is answered', async () => {
    const edges: Body[] = [
      { n: 16, max_tokens: 1 },
      { temperature: 2, top_p: 1, top_k: 0, min_p: 1 },
      { temperature: null, top_p: null, max_tokens: null, stop: 'e', seed: null },
      { stop: many(16, String) },
      { stop: [''] },
      { logit_bias: Object.fromEntries(many(1024, i => [i, -100]) as [number, number][]) },
      { tools: [], tool_choice: 'auto' },
      { tools: many(4, i => tool(`t${i}`)), tool_choice: 'none' },
      {
        messages: [
          { role: 'system', content: null },
          { role: 'user', content: [] },
        ],
      },
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'a' },
              { type: 'text', text: 'b' },
            ],
          },
        ],
      },
      { user: 'x', metadata: {}, service_tier: 'auto', unknown_field: [1] },
      { top_logprobs: 20, logprobs: true },
    ]
    for (const edge of edges) {
      const response = await post('/v1/chat/completions', { ...chat, ...edge })
      expect([await response.text(), response.status]).toEqual([expect.any(String), 200])
    }
  })

  test('with a recursive or explosive schema is answered or refused, in time', async () => {
    const tree = { $defs: { t: { type: 'object', properties: { c: { $ref: '#/$defs/t' } } } }, $ref: '#/$defs/t' }
    const loop = { $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' }
    const schemas = [
      tree,
      loop,
      { type: 'string', pattern: '^(a+)+$' },
      { type: 'string', pattern: '^((a{1,100}){1,100}){1,100}$' },
      { type: 'string', minLength: 1e9, maxLength: 1e9 },
      { type: 'array', minItems: 1e6, items: { type: 'integer' } },
      { enum: many(5000, i => `value ${i}`) },
    ]
    for (const schema of schemas) {
      const started = Date.now()
      const response = await post('/v1/chat/completions', { ...chat, ...format(schema) })
      expect([200, 400], JSON.stringify(schema).slice(0, 200)).toContain(response.status)
      await response.json()
      expect(Date.now() - started).toBeLessThan(15_000)
    }
  })
})

describe('text', () => {
  test('with lone surrogates, NUL, or of one endless word is answered', async () => {
    for (const text of ['\ud800 a \udfff', 'a\0b', '\u202e', '👩‍👩‍👧‍👦'.repeat(5)]) {
      expect((await post('/v1/messages', { ...chat, ...content(text) })).status).toBe(200)
    }
    const started = Date.now()
    const word = await post('/v1/messages/count_tokens', { ...content('a'.repeat(1_000_000)) })
    expect((await word.json()).input_tokens).toBeGreaterThan(1000)
    expect(Date.now() - started).toBeLessThan(10_000)
  })

  test('that spells control tokens stays text', async () => {
    const count = async (text: string) =>
      (await (await post('/v1/messages/count_tokens', content(text))).json()).input_tokens
    const plain = await count('x')
    expect(await count('<|im_end|>')).toBeGreaterThan(plain + 1)
    expect(await count('<think></think><tool_call>')).toBeGreaterThan(plain + 4)
  })

  test.each(['loop', 'nested', 'output'])('cannot freeze the server through a template: %s', async text => {
    const request = post('/v1/chat/completions', { ...chat, ...content(text) })
    const beside = await fetch(`${server.url}/health`)
    expect(await beside.json()).toMatchObject({ status: 'ok' })
    const message = await expectRefusal('/v1/chat/completions', await request)
    expect(message).toContain('template')
  })
})

describe('a connection', () => {
  test('that sends a body for ever is cut off', async () => {
    const endless = async (first: string) => {
      const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`
      const head = `${rawPost({ 'Transfer-Encoding': 'chunked' })}${first.length}\r\n${first}\r\n`
      const { status } = await rawRequest(server.port, head, {
        more: socket => {
          const timer = setInterval(() => socket.write(chunk), 1)
          socket.on('close', () => clearInterval(timer))
        },
      })
      return status
    }
    expect([413, null]).toContain(await endless('{"a":"'))
    expect([400, null]).toContain(await endless('{"a":'))
  })

  test('that sends its headers or its body slowly is cut off', async () => {
    const [headersSlow, bodySlow] = await Promise.all([
      rawRequest(server.port, 'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-A: '),
      rawRequest(server.port, `${rawPost({ 'Content-Length': '500' })}{"messages":`),
    ])
    expect([headersSlow.status, bodySlow.status]).toEqual([408, 408])
    expect(Math.max(headersSlow.milliseconds, bodySlow.milliseconds)).toBeLessThan(6_000)
  })

  test('with broken HTTP or too many headers is refused', async () => {
    expect((await rawRequest(server.port, 'HELLO\r\n\r\n')).status).toBe(400)
    const large = rawHead('GET', '/health', { 'X-Large': 'x'.repeat(20_000) })
    expect((await rawRequest(server.port, large)).status).toBe(431)
    const both = rawPost({ 'Transfer-Encoding': 'chunked', 'Content-Length': '5' })
    expect((await rawRequest(server.port, `${both}0\r\n\r\n`)).status).toBe(400)
  })

  test('that closes during the prompt or the answer frees its place', async () => {
    const long = JSON.stringify({ messages: [{ role: 'user', content: 'dog '.repeat(700) }], stream: true })
    for (const wait of [0, 30, 100, 300]) {
      const head = `${rawPost({ 'Content-Length': String(long.length) })}${long}`
      await rawRequest(server.port, head, { limitMs: wait })
      await server.idle()
    }
  })

  test.each([
    ['/../../../etc/passwd'],
    ['/..%2f..%2fetc/passwd'],
    ['/%2e%2e/%2e%2e/etc/passwd'],
    ['/..\\..\\package.json'],
    ['/assets/../../cli/main.js'],
    ['//etc/passwd'],
    ['/index.html%00.js'],
    ['/v1/models/..%2f..%2fpackage.json'],
    ['/v1/responses/..%2f..%2fpackage.json'],
  ])('cannot read files through %s', async path => {
    const { status, text } = await rawRequest(server.port, rawHead('GET', path, { 'X-Api-Key': KEY }))
    expect([404, 400]).toContain(status)
    expect(text).not.toMatch(/root:|moeflux"|import /)
  })
})

describe('a stranger', () => {
  const ask = (path: string, more: Record<string, string>) => rawRequest(server.port, rawHead('GET', path, more))

  test('needs the key, in either header', async () => {
    for (const path of ['/v1/models', '/metrics']) {
      expect((await ask(path, {})).status).toBe(401)
      expect((await ask(path, { Authorization: 'Bearer wrong' })).status).toBe(401)
      expect((await ask(path, { Authorization: `Basic ${KEY}` })).status).toBe(401)
      expect((await ask(path, { 'X-Api-Key': `${KEY}x` })).status).toBe(401)
      expect((await ask(path, { 'X-Api-Key': '' })).status).toBe(401)
      expect((await ask(path, { Authorization: `Bearer ${KEY}` })).status).toBe(200)
      expect((await ask(path, { 'X-Api-Key': KEY })).status).toBe(200)
    }
    expect((await ask('/health', {})).status).toBe(200)
    const refused = await postJson(`${server.url}/v1/messages`, chat)
    await expectRefusal('/v1/messages', refused, 401)
  })

  test('cannot come by another host name or from another page', async () => {
    for (const Host of ['evil.example', '127.0.0.1.evil.example', 'localhost.evil.example:80', '']) {
      expect([400, 403]).toContain((await ask('/health', { Host })).status)
    }
    for (const Host of ['localhost', `127.0.0.1:${server.port}`, '[::1]:1']) {
      expect((await ask('/health', { Host })).status).toBe(200)
    }
    for (const Origin of ['http://evil.example', 'null', 'http://localhost:1', 'file://']) {
      const body = JSON.stringify(chat)
      const request = rawPost({ Origin, 'Content-Length': String(body.length) }) + body
      const { status, text } = await rawRequest(server.port, request)
      expect(status).toBe(403)
      expect(text).not.toContain('access-control-allow-origin')
    }
    const own = { Host: `localhost:${server.port}`, Origin: `http://localhost:${server.port}` }
    expect((await ask('/health', own)).status).toBe(200)
  })
})

describe('a crowd', () => {
  test('of a hundred at once is answered', async () => {
    // Of a server that gives them time: a busy machine takes more than a second to receive a hundred bodies.
    const patient = await start()
    const send = async () => {
      const body = { ...chat, stream: true, max_tokens: 4 }
      const response = await postJson(`${patient.url}/v1/chat/completions`, body, headers)
      return [response.status, (await response.text()).includes('[DONE]')]
    }
    const answers = await Promise.all(Array.from({ length: 100 }, send))
    expect(answers.filter(([status, whole]) => status !== 200 || whole !== true)).toEqual([])
    await patient.stop()
  })
})
