// Requests that no client library would send: bytes over a socket, and what came back until the server closed or was done.
import { connect, type Socket } from 'node:net'

export interface RawReply {
  readonly status: number | null // null: closed without an answer
  readonly text: string
  readonly milliseconds: number
}

/** Sends `head`, then lets `more` write on, and collects the reply until the connection ends or `limitMs` passes. */
export function rawRequest(
  port: number,
  head: string | Buffer,
  options: { more?: (socket: Socket) => void; limitMs?: number } = {},
): Promise<RawReply> {
  const started = Date.now()
  return new Promise(resolve => {
    const socket = connect({ port, host: '127.0.0.1' })
    let text = ''
    const done = () => {
      clearTimeout(timer)
      socket.destroy()
      const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1]
      resolve({ status: status === undefined ? null : Number(status), text, milliseconds: Date.now() - started })
    }
    const timer = setTimeout(done, options.limitMs ?? 15_000)
    socket.setEncoding('utf8').on('data', chunk => {
      text += chunk
    })
    socket.on('error', () => {})
    socket.on('close', done)
    socket.write(head)
    options.more?.(socket)
  })
}

export function rawHead(method: string, path: string, headers: Record<string, string> = {}): string {
  const all = { Host: 'localhost', Connection: 'close', ...headers }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`
}
