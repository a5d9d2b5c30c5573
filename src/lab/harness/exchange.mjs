// One HTTP request over a socket of its own, sent as no client library would: in pieces, half-closed, read slowly or not
// at all, left at any point. Gives what came back, and never throws. Only ever talks to this machine.
import { connect } from 'node:net'

/**
 * `manner` says how the client behaves:
 * - leaveAt: 'connected' | 'head' | 'body' | 'sent' | 'waiting' (after `leaveAfterMs`) | 'reading' (after `leaveAfterBytes`)
 * - halfClose: closes its own side after the request
 * - pieces, pieceMs: sends the body in so many pieces with a pause after each
 * - pauseMs, pauses: stops reading for so long, so many times
 *
 * The reply's `end` is 'whole' (the body ended as its framing says), 'broken' (the connection ended before), 'none'
 * (it ended without a status), 'left' (this side hung up as told), 'late' (past `limitMs`) or 'given up' (`signal`).
 */
export function exchange({ port, method = 'POST', path, headers = {}, body = null, manner = {}, limitMs, signal }) {
  const started = performance.now()
  return new Promise(resolve => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    const reader = new ReplyReader(method)
    const timers = new Set()
    let isDone = false
    let pausesLeft = manner.pauses ?? 0
    const later = (ms, work) => {
      const timer = setTimeout(() => {
        timers.delete(timer)
        work()
      }, ms)
      timers.add(timer)
    }
    const finish = end => {
      if (isDone) return
      isDone = true
      for (const timer of timers) clearTimeout(timer)
      signal?.removeEventListener('abort', giveUp)
      socket.destroy()
      resolve({ ...reader.reply(), end, milliseconds: performance.now() - started })
    }
    const ended = () => finish(reader.endsWithConnection() ? 'whole' : reader.status === null ? 'none' : 'broken')
    const giveUp = () => finish('given up')
    later(limitMs, () => finish('late'))
    signal?.addEventListener('abort', giveUp)
    socket.on('error', error => {
      reader.error = error.code ?? error.message
      ended()
    })
    socket.on('end', ended)
    socket.on('close', ended)
    socket.on('data', chunk => {
      reader.take(chunk)
      if (reader.isWhole) finish('whole')
      else if (manner.leaveAt === 'reading' && reader.bodyBytes >= (manner.leaveAfterBytes ?? 1)) finish('left')
      else if (pausesLeft > 0 && reader.status !== null) {
        pausesLeft--
        socket.pause()
        later(manner.pauseMs, () => socket.resume())
      }
    })
    socket.on('connect', () => {
      if (manner.leaveAt === 'connected') return finish('left')
      const length = body === null || 'transfer-encoding' in headers ? {} : { 'content-length': body.length }
      const all = { host: `127.0.0.1:${port}`, connection: 'close', ...length, ...headers }
      const lines = Object.entries(all).flatMap(([name, value]) => [value].flat().map(one => `${name}: ${one}\r\n`))
      socket.write(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`)
      if (manner.leaveAt === 'head') return later(manner.leaveAfterMs ?? 0, () => finish('left'))
      sendBody()
    })

    function sendBody() {
      const whole = body ?? Buffer.alloc(0)
      const until = manner.leaveAt === 'body' ? Math.floor(whole.length / 2) : whole.length
      const pieces = Math.max(1, manner.pieces ?? 1)
      const size = Math.ceil(until / pieces)
      let sent = 0
      const next = () => {
        if (isDone) return
        const piece = whole.subarray(sent, Math.min(until, sent + size))
        sent += piece.length
        const more = () => (sent < until ? later(manner.pieceMs ?? 0, next) : bodySent())
        if (piece.length === 0) more()
        else socket.write(piece, error => error ?? more())
      }
      next()
    }

    function bodySent() {
      if (isDone) return
      if (manner.leaveAt === 'body' || manner.leaveAt === 'sent') return later(0, () => finish('left'))
      if (manner.leaveAt === 'waiting') later(manner.leaveAfterMs ?? 0, () => finish('left'))
      if (manner.halfClose) socket.end()
    }
  })
}

/** The same with bytes that need not be HTTP. */
export function rawExchange({ port, bytes, limitMs }) {
  const started = performance.now()
  return new Promise(resolve => {
    const socket = connect({ port, host: '127.0.0.1' })
    const reader = new ReplyReader('POST')
    const finish = end => {
      clearTimeout(timer)
      socket.destroy()
      resolve({ ...reader.reply(), end, milliseconds: performance.now() - started })
    }
    const timer = setTimeout(() => finish('late'), limitMs)
    socket.on('data', chunk => reader.take(chunk))
    socket.on('error', error => (reader.error = error.code ?? error.message))
    socket.on('close', () => finish(reader.isWhole ? 'whole' : reader.status === null ? 'none' : 'broken'))
    socket.end(bytes)
  })
}

/** The status, headers and body of one reply, from chunks of any size. */
class ReplyReader {
  status = null
  headers = {}
  isWhole = false
  bodyBytes = 0
  error = null
  #rest = Buffer.alloc(0)
  #pieces = []
  #left = null // bytes of the body, or of the chunk, that are still to come; null: until the connection ends
  #isChunked = false
  #hasBody

  constructor(method) {
    this.#hasBody = method !== 'HEAD'
  }

  take(chunk) {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    while (!this.isWhole && this.#step());
  }

  endsWithConnection() {
    return this.isWhole || (this.status !== null && !this.#isChunked && this.#left === null && this.error === null)
  }

  reply() {
    const bytes = Buffer.concat(this.#pieces)
    return { status: this.status, headers: this.headers, bytes, text: bytes.toString('utf8'), error: this.error }
  }

  #step() {
    if (this.status === null) return this.#readHead()
    if (this.#isChunked && this.#left === null) return this.#readChunkSize()
    if (this.#rest.length === 0) return false
    const size = Math.min(this.#left ?? this.#rest.length, this.#rest.length)
    this.#pieces.push(this.#rest.subarray(0, size))
    this.bodyBytes += size
    this.#rest = this.#rest.subarray(size)
    if (this.#left === null) return false
    this.#left -= size
    if (this.#left > 0) return false
    if (!this.#isChunked) this.isWhole = true
    else this.#left = null
    return true
  }

  #readHead() {
    const end = this.#rest.indexOf('\r\n\r\n')
    if (end < 0) return false
    const [first, ...lines] = this.#rest.subarray(0, end).toString('latin1').split('\r\n')
    this.#rest = this.#rest.subarray(end + 4)
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(first)?.[1])
    if (status < 200) return true // 100 Continue: the answer follows
    this.status = status
    for (const line of lines) {
      const colon = line.indexOf(':')
      this.headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim()
    }
    this.#isChunked = this.headers['transfer-encoding'] === 'chunked'
    const length = this.headers['content-length']
    if (status === 204 || status === 304 || !this.#hasBody) this.isWhole = true
    else if (!this.#isChunked && length !== undefined) {
      this.#left = Number(length)
      this.isWhole = this.#left === 0
    }
    return true
  }

  /** A chunk's data is followed by a line break, which the next size line is found behind. */
  #readChunkSize() {
    const from = this.#rest[0] === 13 && this.#pieces.length > 0 ? 2 : 0
    const end = this.#rest.indexOf('\r\n', from)
    if (end < 0) return false
    const size = Number.parseInt(this.#rest.subarray(from, end).toString('latin1'), 16)
    this.#rest = this.#rest.subarray(end + 2)
    if (size > 0) this.#left = size
    else this.isWhole = true
    return true
  }
}

/** Events of a stream, comments left out. A block without its blank line at the end is not an event. */
export function sentEvents(text) {
  const blocks = text.split('\n\n').slice(0, -1)
  return blocks
    .filter(block => !block.startsWith(':'))
    .map(block => ({ event: /^event: (.*)$/m.exec(block)?.[1] ?? null, data: /^data: (.*)$/m.exec(block)?.[1] ?? '' }))
}
