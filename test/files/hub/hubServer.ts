// A hub look-alike: the two calls that list a model, a search, and files by range. It can drop connections after some bytes, send
// slowly, answer with errors for a while, and change a file's etag in the middle.
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface HubBehaviour {
  /** Bytes after which the connection of a file is cut; null: none is. */
  dropAfter: (path: string, request: number) => number | null
  /** Milliseconds between pieces. */
  pauseMs: number
  /** Waited for before each piece of a file, with what was sent of all files so far. */
  hold: (sent: number) => Promise<void> | null
  pieceBytes: number
  /** An answer in place of the right one. */
  failWith: (path: string, request: number) => number | null
  etag: (path: string, sha256: string, request: number) => string
  /** What a search for models finds. */
  search: (query: URLSearchParams) => unknown
  /** What is sent in place of a file's bytes; of the same length. */
  content: (path: string, bytes: Uint8Array, request: number) => Uint8Array
}

export interface HubServer {
  readonly url: string
  readonly behaviour: HubBehaviour
  readonly requests: { path: string; range: string | null; authorization: string | null }[]
  /** Bytes of files that were sent. */
  sent(): number
  close(): Promise<void>
}

export const COMMIT = 'c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00'

export async function startHub(
  id: string,
  files: ReadonlyMap<string, Uint8Array>,
  token: string | null = null,
): Promise<HubServer> {
  const behaviour: HubBehaviour = {
    dropAfter: () => null,
    pauseMs: 0,
    hold: () => null,
    pieceBytes: 64 * 1024,
    failWith: () => null,
    etag: (_, sha256) => `"${sha256}"`,
    search: () => [],
    content: (_, bytes) => bytes,
  }
  const requests: HubServer['requests'] = []
  const counts = new Map<string, number>()
  let sent = 0

  const tree = [...files].map(([path, bytes]) => ({
    type: 'file',
    path,
    size: bytes.length,
    oid: createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex'),
    ...(path.endsWith('.safetensors') && { lfs: { oid: sha256(bytes), size: bytes.length } }),
  }))

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '', 'http://hub')
    const path = decodeURIComponent(url.pathname)
    const count = (counts.get(path) ?? 0) + 1
    counts.set(path, count)
    requests.push({ path, range: request.headers.range ?? null, authorization: request.headers.authorization ?? null })
    const failure = behaviour.failWith(path, count)
    if (failure !== null) return void response.writeHead(failure).end()
    if (token !== null && request.headers.authorization !== `Bearer ${token}`) return void response.writeHead(401).end()
    if (path === '/api/models') return void response.end(JSON.stringify(behaviour.search(url.searchParams)))
    if (path === `/api/models/${id}/revision/main`) return void response.end(JSON.stringify({ id, sha: COMMIT }))
    if (path === `/api/models/${id}/tree/${COMMIT}`) {
      // Two pages, as the hub does with long lists.
      const isFirst = !url.searchParams.has('cursor')
      if (isFirst) response.setHeader('link', `<http://${request.headers.host}${path}?cursor=2>; rel="next"`)
      return void response.end(JSON.stringify(isFirst ? tree.slice(0, 2) : tree.slice(2)))
    }
    const name = path.startsWith(`/${id}/resolve/${COMMIT}/`) ? path.slice(`/${id}/resolve/${COMMIT}/`.length) : ''
    const bytes = files.get(name)
    if (bytes === undefined) return void response.writeHead(404).end()
    await sendFile(request, response, name, behaviour.content(name, bytes, count), count)
  }

  async function sendFile(
    request: IncomingMessage,
    response: ServerResponse,
    name: string,
    bytes: Uint8Array,
    count: number,
  ): Promise<void> {
    const etag = behaviour.etag(name, sha256(bytes), count)
    const asked = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '')
    const isStale = request.headers['if-range'] !== undefined && request.headers['if-range'] !== etag
    const from = asked && !isStale ? Number(asked[1]) : 0
    const to = asked && !isStale && asked[2] !== '' ? Math.min(Number(asked[2]), bytes.length - 1) : bytes.length - 1
    const head = { etag, 'accept-ranges': 'bytes', 'content-length': to + 1 - from }
    if (asked && !isStale) response.writeHead(206, { ...head, 'content-range': `bytes ${from}-${to}/${bytes.length}` })
    else response.writeHead(200, head)
    const limit = behaviour.dropAfter(name, count)
    for (let at = from; at <= to && !response.destroyed; at += behaviour.pieceBytes) {
      const end = Math.min(at + behaviour.pieceBytes, to + 1)
      if (limit !== null && end - from > limit) return void response.destroy()
      await behaviour.hold(sent)
      response.write(bytes.subarray(at, end))
      sent += end - at
      if (behaviour.pauseMs > 0) await new Promise(resolve => setTimeout(resolve, behaviour.pauseMs))
      else if (response.writableNeedDrain) await drained(response)
    }
    response.end()
  }

  const server = createServer((request, response) => void answer(request, response))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    behaviour,
    requests,
    sent: () => sent,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function drained(response: ServerResponse): Promise<void> {
  return new Promise(resolve => {
    const done = () => {
      response.off('drain', done).off('close', done)
      resolve()
    }
    response.on('drain', done).on('close', done)
  })
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}
