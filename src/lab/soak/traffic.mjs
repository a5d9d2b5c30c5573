// What the clients of a soak ask, and how they behave. A request is made from its seed, client and turn alone, so that one
// that failed can be sent again without the thousands before it. Each says which replies are right.
import { seededRandom } from '../harness/random.mjs'
import { BOMBS, DEEP_SCHEMA } from './bombs.mjs'

const MIB = 2 ** 20
const BUSY = [429]
const WORDS =
  'the a little dog cat girl boy saw found big red ball house tree went to and with happy sad day park'.split(' ')
const LEAVING_SHARE = 0.5
/** These are from the catalogue and stay to hear the answer, whatever else is random. */
const COMPARED_SHARE = 0.2

/**
 * `world`: catalogue, contextLength, maxBodyBytes, files (what the server serves of its model), without (kinds that are
 * left out).
 */
export function makeRequest(world, seed, client, turn) {
  const random = seededRandom(seed, client, turn)
  const isCompared = random.chance(COMPARED_SHARE)
  const choices = KINDS.filter(([, kind]) => !world.without.includes(kind))
  const kind = isCompared ? 'catalogue' : random.weighted(choices)
  const request = { method: 'POST', statuses: [200], ...MAKERS[kind](world, random) }
  const leaves = !isCompared && random.chance(LEAVING_SHARE)
  const manner = leaves ? leavingManner(random) : stayingManner(random, world.without)
  return { id: `${client}.${turn}`, kind, isCompared, manner: { ...manner, ...request.manner }, ...withBody(request) }
}

/** `[weight, kind]` */
const KINDS = [
  [30, 'catalogue'],
  [14, 'chat'],
  [6, 'long prompt'],
  [5, 'many choices'],
  [6, 'bomb'],
  [1, 'deep schema'],
  [7, 'broken'],
  [1, 'big body'],
  [1, 'body past the limit'],
  [5, 'count tokens'],
  [1, 'count many tokens'],
  [3, 'kept response'],
  [5, 'look'],
  [3, 'files'],
  [2, 'watcher'],
]
const HALF_CLOSED = 'half-closed'
export const REQUEST_KINDS = KINDS.map(([, kind]) => kind)
export const KIND_NAMES = [...REQUEST_KINDS, HALF_CLOSED]

const json = { 'content-type': 'application/json' }
const user = content => ({ role: 'user', content })
const sentence = (random, words) => Array.from({ length: words }, () => random.pick(WORDS)).join(' ')

function withBody(request) {
  if (request.json === undefined) return { headers: {}, body: null, ...request }
  return { headers: json, ...request, body: Buffer.from(JSON.stringify(request.json)) }
}

const MAKERS = {
  catalogue({ catalogue }, random) {
    const entry = random.pick(catalogue)
    return {
      path: entry.path,
      json: { ...entry.body, stream: random.chance(0.6) },
      statuses: [200, ...BUSY],
      entry,
    }
  },

  chat(_, random) {
    const path = random.pick(['/v1/chat/completions', '/v1/messages', '/v1/responses', '/v1/completions'])
    const content = `Tell me a story: ${sentence(random, random.between(3, 60))}`
    const stream = random.chance(0.7)
    const length = random.between(1, 40)
    const bodies = {
      '/v1/chat/completions': { messages: [user(content)], max_tokens: length, temperature: random.next() * 2 },
      '/v1/messages': { messages: [user(content)], max_tokens: length },
      '/v1/responses': { input: content, max_output_tokens: length, store: false },
      '/v1/completions': { prompt: content, max_tokens: length, top_k: random.between(0, 50) },
    }
    return { path, json: { ...bodies[path], stream }, statuses: [200, ...BUSY] }
  },

  /** About as many tokens as words: well inside the context it is answered, well past it refused. */
  'long prompt'({ contextLength }, random) {
    const share = 0.3 + random.next()
    const words = Math.floor(contextLength * share)
    const path = random.pick(['/v1/chat/completions', '/v1/messages'])
    const statuses = share < 0.8 ? [200] : share > 1.15 ? [400] : [200, 400]
    const body = { messages: [user(sentence(random, words))], max_tokens: 4, stream: random.chance(0.5) }
    return { path, json: body, statuses: [...statuses, ...BUSY] }
  },

  'many choices'(_, random) {
    const extra = random.pick([{ logprobs: true, top_logprobs: 20 }, { seed: 1 }, { frequency_penalty: 1, min_p: 0.1 }])
    const body = { messages: [user(sentence(random, 8))], n: random.between(2, 6), max_tokens: 12, ...extra }
    return {
      path: '/v1/chat/completions',
      json: { ...body, stream: random.chance(0.5), stream_options: { include_usage: true } },
      statuses: [200, ...BUSY],
    }
  },

  /** As a format, or as the arguments of a tool that must be called. */
  bomb(_, random) {
    const name = random.pick(Object.keys(BOMBS))
    const schema = BOMBS[name]()
    const asTool = random.chance(0.3)
    const tool = { name: 'f', parameters: { type: 'object', properties: { a: schema } }, strict: true }
    const body = asTool
      ? { tools: [{ type: 'function', function: tool }], tool_choice: 'required' }
      : { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } }
    return {
      path: '/v1/chat/completions',
      what: name,
      json: { messages: [user('JSON please')], max_tokens: 8, temperature: 0, stream: random.chance(0.5), ...body },
      statuses: [200, 400, ...BUSY],
    }
  },

  'deep schema'(_, random) {
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema: DEEP_SCHEMA } }
    return {
      path: '/v1/chat/completions',
      json: { messages: [user('JSON please')], max_tokens: 80, seed: random.below(100), response_format },
      statuses: [200, ...BUSY],
      schema: DEEP_SCHEMA,
    }
  },

  broken(_, random) {
    const chat = { messages: [user('Hi')], max_tokens: 2 }
    const path = random.pick(['/v1/chat/completions', '/v1/messages'])
    return random.pick([
      { path, json: { ...chat, max_tokens: -2 }, statuses: [400, ...BUSY] },
      { path, json: { ...chat, messages: 'Hi' }, statuses: [400, ...BUSY] },
      { path, json: { ...chat, messages: [] }, statuses: [400, ...BUSY] },
      { path, json: { ...chat, temperature: 'hot' }, statuses: [400, ...BUSY] },
      { path, json: { ...chat, tools: [{ name: 5 }] }, statuses: [400, ...BUSY] },
      { path, body: Buffer.from('{"messages": [{'), headers: json, statuses: [400, ...BUSY] },
      { path, body: Buffer.from([0x22, 0xff, 0xfe, 0x22]), headers: json, statuses: [400, ...BUSY] },
      { path, body: Buffer.from('['.repeat(50_000)), headers: json, statuses: [400, ...BUSY] },
      { path, body: Buffer.from('{}'), headers: { 'content-type': 'text/plain' }, statuses: [415, ...BUSY] },
      { path, method: 'GET', statuses: [405] },
      { path: '/v1/nowhere', json: chat, statuses: [404] },
      { path: '/../../etc/passwd', method: 'GET', statuses: [404, 400] },
      { path: '/health', method: 'GET', headers: { host: 'evil.example' }, statuses: [403] },
    ])
  },

  'big body'(_, random) {
    const megabytes = random.pick([2, 8, 30])
    return { path: '/v1/chat/completions', ...bigBody(megabytes * MIB), statuses: [400, 413, 429, 503] }
  },

  /** The server may close while the body is still being sent, which can cost the client the reply. */
  'body past the limit'({ maxBodyBytes }) {
    return { path: '/v1/messages', ...bigBody(maxBodyBytes + MIB), statuses: [413, 429, 503], mayBreak: true }
  },

  'count tokens'(_, random) {
    return {
      path: '/v1/messages/count_tokens',
      json: { messages: [user(sentence(random, 200))] },
      statuses: [200, ...BUSY],
    }
  },

  'count many tokens'(_, random) {
    const megabytes = random.pick([1, 5, 15])
    return { path: '/v1/messages/count_tokens', ...bigBody(megabytes * MIB), statuses: [200, 400, 413, 429, 503] }
  },

  /** Kept, read, deleted, gone. */
  'kept response'() {
    const body = { input: 'Tell me a story', max_output_tokens: 4, temperature: 0 }
    return {
      path: '/v1/responses',
      json: body,
      statuses: [200, ...BUSY],
      manner: { leaveAt: undefined },
      follow: reply => {
        const path = `/v1/responses/${JSON.parse(reply.text).id}`
        const again = { kind: 'kept response', headers: {}, body: null, manner: {}, path }
        return [
          { ...again, method: 'GET', statuses: [200] },
          { ...again, method: 'DELETE', statuses: [200] },
          { ...again, method: 'GET', statuses: [404] },
        ]
      },
    }
  },

  look(_, random) {
    return {
      method: 'GET',
      path: random.pick(['/metrics', '/engine', '/v1/models', '/models/index.json', '/', '/health']),
    }
  },

  files({ files }, random) {
    const file = random.pick(files)
    const start = random.below(file.bytes.length)
    const end = random.between(start, file.bytes.length - 1)
    const wantsPart = random.chance(0.5)
    return {
      method: 'GET',
      path: file.path,
      headers: wantsPart ? { range: `bytes=${start}-${end}` } : {},
      statuses: [wantsPart ? 206 : 200],
      wantBytes: wantsPart ? file.bytes.subarray(start, end + 1) : file.bytes,
      readsModelFile: true,
    }
  },

  watcher(_, random) {
    return {
      method: 'GET',
      path: '/engine/events',
      statuses: [200, ...BUSY],
      manner: { leaveAt: 'waiting', leaveAfterMs: random.between(100, 3000), pauses: random.below(2), pauseMs: 500 },
    }
  },
}

const bigBodies = new Map()

/** A prompt of about so many bytes; made once. */
function bigBody(bytes) {
  let body = bigBodies.get(bytes)
  if (body === undefined) {
    const text = 'A little dog went to the park. '.repeat(Math.floor(bytes / 31) - 4)
    body = Buffer.from(JSON.stringify({ max_tokens: 4, messages: [user(text)] }))
    bigBodies.set(bytes, body)
  }
  return { body, headers: json, what: `${Math.round(bytes / MIB)} MiB` }
}

function leavingManner(random) {
  const leaveAt = random.weighted([
    [1, 'connected'],
    [1, 'head'],
    [2, 'body'],
    [3, 'sent'],
    [5, 'waiting'],
    [5, 'reading'],
  ])
  return { leaveAt, leaveAfterMs: Math.floor(1500 * random.next() ** 3), leaveAfterBytes: random.between(1, 4000) }
}

function stayingManner(random, without) {
  return random.weighted([
    [14, {}],
    [2, { pieces: random.between(2, 5), pieceMs: random.between(1, 60) }],
    [2, { halfClose: !without.includes(HALF_CLOSED) }],
    [2, { pauses: random.between(1, 4), pauseMs: random.between(10, 300) }],
  ])
}
