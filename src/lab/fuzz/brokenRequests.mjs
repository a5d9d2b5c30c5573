// Requests that are nearly right: a field of another type, past an edge, missing, twice, nested or huge; headers, methods,
// paths and framings that no client library would send. Each says whether HTTP itself may refuse it, without a body.
import { breakText, brokenJson } from './mutateJson.mjs'
import { GET_PATHS, SAMPLES, SCHEMA_NAMES, SCHEMA_VALUES, SCHEMAS, withForm } from './requestSamples.mjs'

const POST_PATHS = Object.keys(SAMPLES)
const FORM_PATHS = POST_PATHS.filter(path => !/count_tokens|embeddings/.test(path))
const json = { 'content-type': 'application/json' }

/** `[weight, kind]` */
const KINDS = [
  [50, 'fields'],
  [20, 'forms'],
  [10, 'headers'],
  [8, 'methods and paths'],
  [8, 'framing'],
  [4, 'no HTTP'],
]
export const REQUEST_KINDS = KINDS.map(([, kind]) => kind)

export function brokenRequest(random, kinds) {
  const kind = random.weighted(KINDS.filter(([, name]) => kinds.includes(name)))
  return { kind, method: 'POST', headers: json, body: null, manner: {}, isHttpRefusal: false, ...MAKERS[kind](random) }
}

/** A valid body with some of the optional fields. */
function someBody(path, random) {
  const { always, sometimes } = SAMPLES[path]
  const share = random.pick([0.05, 0.15, 0.4])
  const body = { ...always, ...Object.fromEntries(Object.entries(sometimes).filter(() => random.chance(share))) }
  return random.chance(0.9) ? settled(body, sometimes) : body
}

/** Without fields that contradict each other: else hardly anything would get past the first check. */
function settled(body, sometimes) {
  const { previous_response_id: _, ...rest } = body
  if (rest.tool_choice !== undefined) rest.tools = sometimes.tools
  const asksForTool = rest.tool_choice !== undefined
  const forms = ['grammar', 'response_format', 'text', 'output_config', 'output_format']
  const kept = asksForTool ? undefined : forms.find(name => rest[name] !== undefined)
  for (const name of forms) if (name !== kept) delete rest[name]
  if (rest.echo) delete rest.logprobs
  return rest
}

const MAKERS = {
  fields(random) {
    const path = random.pick(POST_PATHS)
    return { path, body: Buffer.from(brokenJson(someBody(path, random), random, { most: 2, textShare: 0.05 })) }
  },

  /** A format, tool or grammar that is wrong in a request that is right. */
  forms(random) {
    const path = random.pick(FORM_PATHS)
    if (random.chance(0.15)) {
      const grammar = breakText('root ::= "yes" | word\nword ::= [a-z]{1,4} ("x" | [^"\\x00-\\x1f])*', random)
      const { always } = SAMPLES['/v1/chat/completions']
      return { path: '/v1/chat/completions', body: Buffer.from(JSON.stringify({ ...always, grammar })) }
    }
    const options = { most: 3, textShare: 0, names: SCHEMA_NAMES, values: SCHEMA_VALUES }
    const schema = brokenJson(random.pick(SCHEMAS), random, options)
    // Put in as text: what is broken in it would not survive being parsed.
    const form = withForm(path, '<schema>', random)
    const body = JSON.stringify(form).replace('"<schema>"', () => schema)
    return { path, body: Buffer.from(body), schema: form.tools === undefined ? schema : undefined }
  },

  headers(random) {
    const path = random.pick(POST_PATHS)
    const body = Buffer.from(JSON.stringify(someBody(path, random)))
    const [headers, isHttpRefusal = false] = random.pick([
      [{ 'content-type': 'text/plain' }],
      [{ 'content-type': '' }],
      [{}],
      [{ 'content-type': 'application/json; charset=utf-16' }],
      [{ 'content-type': 'application/vnd.api+json' }],
      [{ 'content-type': 'application/jsonx' }],
      [{ 'content-type': 'APPLICATION/JSON' }],
      [{ 'content-type': `application/${'x'.repeat(5000)}+json` }],
      [{ ...json, 'content-encoding': random.pick(['gzip', 'br', 'identity']) }],
      [{ ...json, accept: random.pick(['text/event-stream', 'image/png', '*/*;q=0']) }],
      [{ ...json, 'accept-encoding': 'gzip, br' }],
      [{ ...json, 'anthropic-version': random.pick(['2023-06-01', '', 'x'.repeat(3000)]) }],
      [{ ...json, authorization: random.pick(['Bearer ', 'Bearer x', 'Basic !!!', 'x'.repeat(3000)]) }],
      [{ ...json, 'x-api-key': ['a', 'b'] }],
      [{ ...json, origin: random.pick(['null', 'http://evil.example', '::', 'file://']) }],
      [{ ...json, host: random.pick(['evil.example', 'localhost', '[::1]', 'a b', '']) }, true],
      [{ ...json, expect: random.pick(['100-continue', 'the unexpected']) }, true],
      [{ ...json, connection: 'upgrade', upgrade: random.pick(['websocket', 'h2c']) }],
      [{ ...json, range: 'bytes=0-1', 'if-none-match': '*', 'if-match': '"x"' }],
      [Object.fromEntries([...Object.entries(json), ...Array.from({ length: 200 }, (_, i) => [`x-${i}`, 'y'])]), true],
      [{ ...json, 'x-large': 'x'.repeat(20_000) }, true],
      [{ ...json, 'x-control': 'a\x01b' }, true],
      [{ ...json, 'x-latin': '\xe9\xff' }],
      [{ ...json, 'content-length': random.pick(['-1', '1e9', '99999999999', 'x', '+5']) }, true],
      [{ ...json, 'content-length': [String(body.length), String(body.length + 1)] }, true],
    ])
    return { path, headers, body, isHttpRefusal }
  },

  'methods and paths'(random) {
    const base = random.pick([...POST_PATHS, ...GET_PATHS])
    const path = random.pick([
      base,
      `${base}/`,
      `/${base}`,
      `${base}?x=1&x=2`,
      `${base}?stream=true`,
      `${base}%2f..%2f..`,
      `${base}/../../etc/passwd`,
      `${base}%00`,
      `${base}%ff`,
      `${base}#x`,
      base.toUpperCase(),
      encodeURIComponent(base),
      `/v1/responses/${'x'.repeat(5000)}`,
      `/v1/models/${encodeURIComponent('👩‍👩‍👧')}`,
      `http://evil.example${base}`,
      '*',
      `/${'a/'.repeat(2000)}`,
    ])
    const method = random.pick([
      'GET',
      'HEAD',
      'POST',
      'PUT',
      'PATCH',
      'DELETE',
      'OPTIONS',
      'TRACE',
      'PROPFIND',
      'post',
      'X',
    ])
    const body = random.chance(0.4) ? Buffer.from('{}') : null
    const headers = { ...(body === null ? {} : json), ...(random.chance(0.3) && { range: randomRange(random) }) }
    return { path, method, headers, body, isHttpRefusal: true }
  },

  /** A right request in chunks or pieces of any size, or with a length that is not its own. */
  framing(random) {
    const path = random.pick(POST_PATHS)
    const whole = Buffer.from(JSON.stringify(someBody(path, random)))
    const manner = random.pick([{}, { pieces: random.between(2, 40) }, { pieces: 5, pieceMs: 20 }, { halfClose: true }])
    return random.weighted([
      [4, () => ({ path, body: whole, manner })],
      [4, () => ({ path, manner, headers: { ...json, 'transfer-encoding': 'chunked' }, body: chunked(whole, random) })],
      [
        2,
        () => ({
          path,
          headers: { ...json, 'transfer-encoding': 'chunked' },
          body: Buffer.concat([chunked(whole, random), Buffer.from('not a chunk')]),
          isHttpRefusal: true,
        }),
      ],
      [
        1,
        () => ({
          path,
          headers: { ...json, 'transfer-encoding': random.pick(['gzip', 'chunked, chunked', 'x']) },
          body: whole,
          isHttpRefusal: true,
        }),
      ],
      // The rest of the body never comes: the server waits for as long as --receive-timeout says.
      [
        1,
        () => ({ path, headers: { ...json, 'content-length': whole.length + 10 }, body: whole, isHttpRefusal: true }),
      ],
      [1, () => ({ path, headers: { ...json, 'content-length': 10 }, body: whole, isHttpRefusal: true })],
    ])()
  },

  'no HTTP'(random) {
    const raw = random.pick([
      () => Buffer.from(random.bytes(random.between(1, 500))),
      () => Buffer.from('GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n'),
      () => Buffer.from('POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n'),
      () => Buffer.from('GET  /health  HTTP/1.1\r\n\r\n'),
      () => Buffer.from(`GET /${'x'.repeat(70_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`),
      () => Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
      () => Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]),
      () => Buffer.from('GET /health HTTP/1.1\nHost: localhost\n\n'),
      () =>
        Buffer.from(
          'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
        ),
    ])()
    return { path: '/v1/messages', raw, isHttpRefusal: true }
  },
}

function randomRange(random) {
  return random.pick([
    'bytes=0-0',
    'bytes=-5',
    'bytes=5-',
    'bytes=9-1',
    'bytes=0-1,3-4',
    'bytes=99999999999-',
    'lines=1-2',
    '5',
  ])
}

function chunked(bytes, random) {
  const parts = []
  for (let at = 0; at < bytes.length; ) {
    const size = Math.min(bytes.length - at, random.pick([1, 2, 7, 100, 5000]))
    const extension = random.chance(0.05) ? ';name=value' : ''
    const digits = random.chance(0.5) ? size.toString(16) : size.toString(16).toUpperCase().padStart(4, '0')
    parts.push(Buffer.from(`${digits}${extension}\r\n`), bytes.subarray(at, at + size), Buffer.from('\r\n'))
    at += size
  }
  return Buffer.concat([...parts, Buffer.from(random.chance(0.2) ? '0\r\nx-trailer: y\r\n\r\n' : '0\r\n\r\n')])
}
