// A static file server for browser tests: HTTP ranges, headers for cross-origin isolation where asked for, a log of what
// was fetched byte by byte, and faults that can be switched on while it runs.
import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { extname, join, normalize, sep } from 'node:path'

export interface RangeServerOptions {
  /** Path prefix to folder: '/model/' → a packed folder, '/' → a page. The longest prefix wins. */
  readonly mounts: Readonly<Record<string, string>>
  /** Send COOP and COEP, so that pages are cross-origin isolated and have SharedArrayBuffer. Default true. */
  readonly isolated?: boolean
  /** More headers for every answer. */
  readonly headers?: Readonly<Record<string, string>>
}

export interface LoggedRequest {
  readonly method: string
  readonly path: string // without the query
  readonly range: readonly [begin: number, end: number] | null // end is past the last byte
  readonly status: number
  readonly bytes: number // of the body that was to be sent; 0 for HEAD
  readonly authorization: string | null
}

/** Applies to paths that match `path`, or to all. */
export interface Faults {
  path?: RegExp
  /** Cuts the connection without an answer, as if nobody were there. */
  refuse?: boolean
  /** Answers 200 with the whole file whatever range was asked for. */
  noRanges?: boolean
  /** Ends the connection after so many bytes of a body. */
  dropAfter?: number
  /** Another entity tag, as if the file had been replaced. */
  changedTag?: boolean
  /** One bit in the middle of every body is another. */
  flip?: boolean
  /** Waits before every answer. */
  delayMs?: number
  status?: number
  /** How many requests are hit before the fault is over; default all. */
  times?: number
  /** What comes after that. */
  next?: Faults
}

export class RangeServer {
  readonly log: LoggedRequest[] = []
  faults: Faults = {}
  private server: Server | null = null
  private readonly sockets = new Set<Socket>()
  private port = 0

  constructor(private readonly options: RangeServerOptions) {}

  static async start(options: RangeServerOptions): Promise<RangeServer> {
    const server = new RangeServer(options)
    await server.start()
    return server
  }

  get origin(): string {
    return `http://localhost:${this.port}`
  }

  /** Bytes sent of files whose path matches. */
  bytesOf(path: RegExp): number {
    return this.log.filter(entry => path.test(entry.path)).reduce((sum, entry) => sum + entry.bytes, 0)
  }

  /** Starts again on the same port after `stop`. */
  async start(): Promise<void> {
    const server = createServer((request, response) => void this.answer(request, response))
    server.on('connection', socket => {
      this.sockets.add(socket)
      socket.on('close', () => this.sockets.delete(socket))
    })
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(this.port, '127.0.0.1', resolve)
    })
    this.port = (server.address() as AddressInfo).port
    this.server = server
  }

  /** Off: connections are cut and new ones refused. */
  async stop(): Promise<void> {
    const { server } = this
    this.server = null
    for (const socket of this.sockets) socket.destroy()
    await new Promise<void>(resolve => (server ? server.close(() => resolve()) : resolve()))
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = decodeURIComponent(new URL(request.url ?? '/', this.origin).pathname)
    const fault = this.faultFor(path)
    if (fault.delayMs) await new Promise(resolve => setTimeout(resolve, fault.delayMs))
    if (fault.refuse) {
      request.socket.destroy()
      return
    }
    const method = request.method ?? 'GET'
    const finish = (status: number, range: LoggedRequest['range'], bytes: number) => {
      const { authorization = null } = request.headers
      this.log.push({ method, path, range, status, bytes: method === 'HEAD' ? 0 : bytes, authorization })
      response.statusCode = status
    }
    if (this.options.isolated ?? true) {
      response.setHeader('Cross-Origin-Opener-Policy', 'same-origin')
      response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp')
      response.setHeader('Cross-Origin-Resource-Policy', 'same-origin')
    }
    for (const [name, value] of Object.entries(this.options.headers ?? {})) response.setHeader(name, value)
    if (method === 'OPTIONS') {
      finish(204, null, 0)
      response.end()
      return
    }
    const file = this.locate(path)
    if (file === null || fault.status) {
      finish(fault.status ?? 404, null, 0)
      response.end()
      return
    }
    const { size, mtimeMs } = statSync(file)
    const tag = `"${size.toString(16)}-${Math.floor(mtimeMs).toString(16)}${fault.changedTag ? '-changed' : ''}"`
    response.setHeader('Content-Type', types[extname(file)] ?? 'application/octet-stream')
    response.setHeader('ETag', tag)
    response.setHeader('Cache-Control', 'no-cache')
    if (!fault.noRanges) response.setHeader('Accept-Ranges', 'bytes')
    const range = fault.noRanges ? null : parseRange(request.headers.range, size)
    if (range === 'bad') {
      finish(416, null, 0)
      response.setHeader('Content-Range', `bytes */${size}`)
      response.end()
      return
    }
    const [begin, end] = range ?? [0, size]
    finish(range === null ? 200 : 206, range, end - begin)
    if (range !== null) response.setHeader('Content-Range', `bytes ${begin}-${end - 1}/${size}`)
    response.setHeader('Content-Length', end - begin)
    if (method === 'HEAD' || end === begin) {
      response.end()
      return
    }
    if (fault.flip) {
      const body = readFileSync(file).subarray(begin, end)
      body[body.length >> 1] ^= 1
      response.end(body)
      return
    }
    const stream = createReadStream(file, { start: begin, end: end - 1 })
    if (fault.dropAfter === undefined) {
      stream.pipe(response)
      return
    }
    let left = fault.dropAfter
    stream.on('end', () => response.end())
    stream.on('data', chunk => {
      response.write(chunk.slice(0, left))
      left -= chunk.length
      if (left > 0) return
      stream.destroy()
      setTimeout(() => request.socket.destroy(), 20) // what was written has left by then
    })
  }

  private faultFor(path: string): Faults {
    const { faults } = this
    if (faults.path !== undefined && !faults.path.test(path)) return {}
    if (faults.times === undefined) return faults
    if (--faults.times <= 0) this.faults = faults.next ?? {}
    return faults
  }

  private locate(path: string): string | null {
    const prefix = Object.keys(this.options.mounts)
      .filter(mount => path.startsWith(mount))
      .sort((a, b) => b.length - a.length)[0]
    if (prefix === undefined) return null
    const root = normalize(this.options.mounts[prefix])
    const file = normalize(join(root, path.slice(prefix.length) || 'index.html'))
    if (!file.startsWith(root.endsWith(sep) ? root : root + sep) || !existsSync(file)) return null
    return statSync(file).isFile() ? file : null
  }
}

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
}

function parseRange(header: string | undefined, size: number): readonly [number, number] | null | 'bad' {
  const match = /^bytes=(\d+)-(\d*)$/.exec(header ?? '')
  if (match === null) return null
  const begin = Number(match[1])
  const end = match[2] === '' ? size : Math.min(size, Number(match[2]) + 1)
  return begin >= end ? 'bad' : [begin, end]
}
