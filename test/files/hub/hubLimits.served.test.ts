// Hubs that mean harm or are broken: they never answer, never end, send in circles or elsewhere. Each is left after a
// stated limit with one error, and the token goes to no other origin.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { HubError } from '#moeflux/base/errors.js'
import { downloadFile } from '#moeflux/files/hub/downloadFile.js'
import { HubClient, type HubOptions } from '#moeflux/files/hub/hubClient.js'
import type { HubLimits } from '#moeflux/files/hub/hubLimits.js'
import { moeflux } from '../../apps/cli/moeflux.js'
import { temporaryFolder } from '../../support/models/packedFiles.js'

const ID = 'people/demo'
const COMMIT = 'c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00'
const TOKEN = 'hf_SECRETsecret0123456789'
/** Of tests in which somebody waits for nothing; elsewhere a busy machine would look like a silent hub. */
const impatient: Partial<HubLimits> = { stallMs: 150, leastBytes: 256 }

interface TestServer {
  readonly url: string
  readonly requests: { readonly url: string; readonly authorization: string | null }[]
}

const servers: Server[] = []
afterEach(async () => {
  vi.unstubAllGlobals()
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  }
})

async function serve(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<TestServer> {
  const requests: TestServer['requests'] = []
  const server = createServer({ maxHeaderSize: 1 << 20 }, (request, response) => {
    requests.push({ url: request.url ?? '', authorization: request.headers.authorization ?? null })
    response.on('error', () => {})
    answer(request, response)
  })
  servers.push(server)
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests }
}

function client(hub: TestServer | string, options: Partial<HubOptions> = {}): HubClient {
  const endpoint = typeof hub === 'string' ? hub : hub.url
  return new HubClient(
    ID,
    { endpoint, token: TOKEN, ...options, limits: { attempts: 2, answerBytes: 64 * 1024, ...options.limits } },
    {},
  )
}

/** Sends so many bytes again and again, for as long as somebody listens. */
function sendForEver(response: ServerResponse, bytes: number, pauseMs: number): void {
  const timer = setInterval(() => response.write(' '.repeat(bytes)), pauseMs)
  response.on('close', () => clearInterval(timer))
}

async function failure(promise: Promise<unknown>): Promise<HubError> {
  const error = await promise.then(
    () => null,
    error => error,
  )
  expect(error).toBeInstanceOf(HubError)
  expect(error.message).not.toContain(TOKEN)
  return error
}

describe('the token', () => {
  test('does not follow the list of files to another origin', async () => {
    const other = await serve((_, response) => response.end('[]'))
    const hub = await serve((_, response) => {
      response.setHeader('link', `<${other.url}/api/models/${ID}/tree/x?cursor=1>; rel="next"`)
      response.end('[]')
    })
    const error = await failure(client(hub).files(COMMIT))
    expect(error.message).toMatch(/next page is at another origin than the hub \(http:\/\/127/)
    expect(other.requests).toEqual([])
    expect(hub.requests).toEqual([expect.objectContaining({ authorization: `Bearer ${TOKEN}` })])
  })

  test.each([
    ['a name of another scheme', (url: string) => url.replace('http:', 'ftp:')],
    ['a password before the host', (url: string) => url.replace('//', '//a:b@')],
    ['no address', () => 'http://[::1'],
  ])('does not go to %s', async (_, next) => {
    const hub = await serve((request, response) => {
      response.setHeader('link', `<${next(`http://${request.headers.host}`)}>; rel="next"`)
      response.end('[]')
    })
    expect((await failure(client(hub).files(COMMIT))).message).toMatch(/another origin/)
    expect(hub.requests).toHaveLength(1)
  })

  test('stays with the hub when files lie elsewhere, and is not sent again on the way back', async () => {
    const content = Buffer.from('0123456789')
    const elsewhere = await serve((request, response) => {
      if (request.url?.startsWith('/back')) return void response.writeHead(302, { location: `${hub.url}/last` }).end()
      response.writeHead(206, { 'content-range': 'bytes 0-9/10', 'content-length': 10 }).end(content)
    })
    const hub = await serve((request, response) => {
      if (request.url?.endsWith('/moved')) return void response.writeHead(307, { location: 'here' }).end()
      if (request.url?.endsWith('/here')) return void response.writeHead(302, { location: `${elsewhere.url}/f` }).end()
      if (request.url?.endsWith('/round'))
        return void response.writeHead(302, { location: `${elsewhere.url}/back` }).end()
      response.writeHead(206, { 'content-range': 'bytes 0-9/10', 'content-length': 10 }).end(content)
    })
    const hubClient = client(hub)
    const folder = temporaryFolder()
    for (const path of ['moved', 'round']) {
      await downloadFile(hubClient, COMMIT, { path, size: 10, checksum: null }, `${folder}/${path}`)
    }
    const sent = (server: TestServer) =>
      server.requests.map(({ url, authorization }) => [url.split('/').at(-1), authorization])
    expect(sent(hub)).toEqual([
      ['moved', `Bearer ${TOKEN}`],
      ['here', `Bearer ${TOKEN}`],
      ['round', `Bearer ${TOKEN}`],
      ['last', null],
    ])
    expect(sent(elsewhere)).toEqual([
      ['f', null],
      ['back', null],
    ])
  })

  test('takes another port, and http in place of https, for another origin', async () => {
    const seen: [string, string | null][] = []
    let location = 'https://hub.example:8443/x'
    vi.stubGlobal('fetch', async (url: URL, init: RequestInit) => {
      seen.push([url.href, new Headers(init.headers).get('authorization')])
      if (url.pathname === '/x') return new Response(JSON.stringify({ sha: COMMIT }))
      return new Response(null, { status: 302, headers: { location } })
    })
    expect(await client('https://hub.example').commit('main')).toBe(COMMIT)
    expect(seen.map(([, authorization]) => authorization)).toEqual([`Bearer ${TOKEN}`, null])
    location = 'http://hub.example/x'
    expect((await failure(client('https://hub.example').commit('main'))).message).toMatch(/from https to http/)
    for (location of ['file:///etc/passwd', 'https://a:b@hub.example/x', 'data:,{}']) {
      expect((await failure(client('https://hub.example').commit('main'))).message).toMatch(/is sent on to an address/)
    }
    expect(seen).toHaveLength(6)
  })

  test('is in no message, whatever it holds and whatever the hub says of it', async () => {
    for (const token of [`${TOKEN}\nx`, `${TOKEN} x`, `${TOKEN}ä`]) {
      const make = () => new HubClient(ID, { endpoint: 'https://hub.example', token }, {})
      expect(make).toThrow(HubError)
      expect(make).not.toThrow(TOKEN)
    }
    // A line break at its end is the file's that it came from.
    expect(() => new HubClient(ID, { endpoint: 'https://hub.example', token: `${TOKEN}\n` }, {})).not.toThrow()
    const hub = await serve((request, response) => {
      response
        .writeHead(206, { 'content-range': request.headers.authorization, 'content-length': 10 })
        .end('0123456789')
    })
    const file = { path: 'f', size: 10, checksum: null }
    await failure(downloadFile(client(hub), COMMIT, file, `${temporaryFolder()}/f`, { retries: 1, retryMs: 1 }))
    const echo = await serve((request, response) =>
      response.end(JSON.stringify({ sha: request.headers.authorization })),
    )
    await failure(client(echo).commit('main'))
    const env = { HF_ENDPOINT: echo.url, HF_TOKEN: TOKEN, MOEFLUX_HOME: temporaryFolder() }
    const { code, stderr, stdout } = await moeflux(['pull', ID, '--verbose'], { env })
    expect(code).toBe(1)
    expect(stderr + stdout).not.toContain(TOKEN)
  })

  test.each([
    ['https://huggingface.co@hub.example', /name or password/],
    ['https://user:s3cret@hub.example', /name or password/],
    ['https://hub.example?x=', /'\?' or '#'/],
    ['https://hub.example#x', /'\?' or '#'/],
    ['hub.example', /not an http address/],
    ['ftp://hub.example', /not an http address/],
    ['javascript:alert(1)', /not an http address/],
  ])('does not go to an endpoint like %s', (endpoint, message) => {
    expect(() => client(endpoint)).toThrow(message)
    expect(() => client(endpoint)).not.toThrow('s3cret')
  })
})

describe('a hub that does not end', () => {
  test.each<[string, (request: IncomingMessage, response: ServerResponse) => void, RegExp, Partial<HubLimits>?]>([
    ['never answers', () => {}, /nothing came for 150 ms \(asked 2 times\)/],
    ['answers and then says nothing', (_, response) => void response.write('{'), /only 1 bytes came for 150 ms/],
    ['trickles', (_, response) => sendForEver(response, 1, 5), /only \d+ bytes came for 150 ms/],
    ['sends without end', (_, response) => sendForEver(response, 16 * 1024, 1), /sends more than 65536 bytes/, {}],
    ['sends huge headers', (_, response) => void response.setHeader('x', 'x'.repeat(500_000)).end(), /header/i, {}],
  ])('because it %s is left', async (_, answer, message, limits = impatient) => {
    const hub = await serve(answer)
    const error = await failure(client(hub, { limits }).commit('main'))
    expect(error.message).toMatch(message)
    expect(hub.requests.length).toBeLessThanOrEqual(2)
    expect((await failure(client(hub, { limits }).files(COMMIT))).message).toMatch(message)
  })

  test('because it is steady and slow is left', async () => {
    const hub = await serve((_, response) => sendForEver(response, 300, 20))
    const error = await failure(client(hub, { limits: { answerMs: 400 } }).commit('main'))
    expect(error.message).toMatch(/was not whole after 400 ms \(asked 2 times\)/)
  })

  test('because it sends in circles is left after ten times', async () => {
    const hub = await serve((request, response) => void response.writeHead(302, { location: request.url }).end())
    const error = await failure(client(hub).commit('main'))
    expect(error.message).toMatch(/is sent on more than 10 times/)
    expect(hub.requests).toHaveLength(11)
    const nowhere = await serve((_, response) => void response.writeHead(302).end())
    expect((await failure(client(nowhere).commit('main'))).message).toMatch(/is sent on nowhere/)
  })

  test('because its list has no last page is left, and no part of the list is taken for all of it', async () => {
    let page = 0
    const hub = await serve((request, response) => {
      response.setHeader('link', `<http://${request.headers.host}/api?cursor=${++page}>; rel="next"`)
      response.end(JSON.stringify([{ type: 'file', path: `f${page}`, size: 1 }]))
    })
    const error = await failure(client(hub, { limits: { pages: 7 } }).files(COMMIT))
    expect(error.message).toMatch(/more than 7 pages/)
    expect(hub.requests).toHaveLength(7)
    expect((await failure(client(hub, { limits: { files: 5 } }).files(COMMIT))).message).toMatch(/more than 5 files/)
    expect((await failure(client(hub, { limits: { listMs: -1 } }).files(COMMIT))).message).toMatch(/took more than/)
  })

  test.each([-1, 2 ** 50])('because a file of it would have %d bytes is left', async size => {
    const hub = await serve((_, response) => response.end(JSON.stringify([{ type: 'file', path: 'f', size }])))
    expect((await failure(client(hub).files(COMMIT))).message).toMatch(/f: the hub says -?\d+ bytes/)
  })

  test('because a file of it trickles is left, with all its connections', async () => {
    const hub = await serve((_, response) => {
      response.writeHead(206, { 'content-range': 'bytes 0-9999/10000' })
      response.flushHeaders()
      sendForEver(response, 1, 5)
    })
    const file = { path: 'f', size: 10_000, checksum: null }
    const options = { retries: 2, retryMs: 1 }
    const error = await failure(
      downloadFile(client(hub, { limits: impatient }), COMMIT, file, `${temporaryFolder()}/f`, options),
    )
    expect(error.message).toMatch(/gave up after 2 retries: /)
    expect(hub.requests.length).toBeLessThanOrEqual(3)
  })

  test('and sends more of a file than it has, is heard to the end of the file', async () => {
    const hub = await serve((_, response) => {
      response.writeHead(206, { 'content-range': 'bytes 0-9999/10000' })
      sendForEver(response, 4096, 1)
    })
    const path = `${temporaryFolder()}/f`
    await downloadFile(client(hub), COMMIT, { path: 'f', size: 10_000, checksum: null }, path)
    expect(hub.requests).toHaveLength(1)
  })

  test('and sends all of a file for a part of it, is not read to its end', async () => {
    const hub = await serve((_, response) => sendForEver(response, 16 * 1024, 1))
    const start = client(hub).fetchStart(`${hub.url}/f`, 8, 2 ** 40)
    expect((await failure(start)).message).toMatch(/does not send parts of files/)
  })
})
