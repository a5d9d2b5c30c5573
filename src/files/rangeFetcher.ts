// Files of a model from a server, by HTTP ranges. Checks that each answer is the part that was asked for, of the file that
// it was before; goes on where a connection broke off; retries what may pass, with growing pauses. Keeps nothing.
import { FetchError } from '../base/errors.js'

/** What tells a file from another version of it. */
export interface FileIdentity {
  readonly size: number
  readonly tag: string // entity tag or date; '' where the server sends neither
}

export interface RangeOptions {
  readonly signal?: AbortSignal
  /** So many bytes of the target are there. */
  readonly onProgress?: (got: number) => void
  /** Try once only: there is another way to get the bytes, or no hope. */
  readonly once?: boolean
}

const PAUSES_MS = [250, 1000] // between attempts that brought nothing
const IDLE_MS = 30_000 // without a byte: the connection is dead

export class RangeFetcher {
  readonly counters = { requests: 0, bytes: 0 }
  /** The last request was not answered at all. */
  offline = false
  private readonly seen = new Map<string, FileIdentity>()

  constructor(
    readonly base: string, // ends with a slash
    /** Sent with every request. */
    private readonly headers: Readonly<Record<string, string>> = {},
    /** Sends them, where they have to be signed. */
    private readonly send: (url: string, init: RequestInit) => Promise<Response> = (url, init) => fetch(url, init),
  ) {}

  url(name: string): string {
    return new URL(name.split('/').map(encodeURIComponent).join('/'), this.base).href
  }

  /** A whole small file; null where there is none. */
  async whole(name: string, maxBytes: number, options: RangeOptions = {}): Promise<Uint8Array | null> {
    return await this.attempts(name, options, async signal => {
      const response = await this.request(name, { cache: 'no-cache', signal })
      if (response.status === 404 || response.status === 410) return null
      this.checkStatus(name, response, 200)
      const pieces: Uint8Array[] = []
      let size = 0
      await this.readBody(name, response, signal, chunk => {
        size += chunk.length
        this.counters.bytes += chunk.length
        if (size > maxBytes) throw this.error('SHORT_BODY', name, `sent more than ${maxBytes} bytes`)
        pieces.push(chunk)
      })
      const bytes = new Uint8Array(size)
      let at = 0
      for (const piece of pieces) {
        bytes.set(piece, at)
        at += piece.length
      }
      return bytes
    })
  }

  /** Size and tag of a file, and whether parts of it can be had. */
  async identify(name: string, options: RangeOptions = {}): Promise<FileIdentity> {
    const known = this.seen.get(name)
    if (known !== undefined) return known
    return await this.attempts(name, options, async signal => {
      const response = await this.request(name, { headers: { Range: 'bytes=0-0' }, cache: 'no-store', signal })
      void response.body?.cancel().catch(() => {})
      // An empty file has no first byte.
      if (response.status === 416) return { size: 0, tag: tagOf(response) }
      this.checkPart(name, response)
      const size = totalOf(response)
      if (size === null) throw this.error('NO_RANGES', name, 'the server does not tell how long the file is')
      const identity = { size, tag: tagOf(response) }
      this.seen.set(name, identity)
      return identity
    })
  }

  /** Fills `target` with the bytes from `begin` on, of a file of `size` bytes. */
  async range(
    name: string,
    size: number,
    begin: number,
    target: Uint8Array,
    options: RangeOptions = {},
  ): Promise<void> {
    await this.scatter(name, size, begin, [target], options)
  }

  /** The same into several targets, whose bytes follow one another in the file. */
  async scatter(
    name: string,
    size: number,
    begin: number,
    targets: readonly Uint8Array[],
    options: RangeOptions = {},
  ): Promise<void> {
    const length = targets.reduce((sum, target) => sum + target.length, 0)
    const writer = new ScatterWriter(targets)
    let got = 0
    const fetchRest = async (signal: AbortSignal) => {
      const headers = { Range: `bytes=${begin + got}-${begin + length - 1}` }
      const response = await this.request(name, { headers, cache: 'no-store', signal })
      this.checkPart(name, response)
      this.checkSame(name, response, size)
      await this.readBody(name, response, signal, chunk => {
        if (got + chunk.length > length) throw this.error('SHORT_BODY', name, 'sent more than was asked for')
        writer.write(chunk)
        got += chunk.length
        this.counters.bytes += chunk.length
        options.onProgress?.(got)
      })
      if (got === length) return
      throw this.error('UNREACHABLE', name, `the connection broke off after ${got} of ${length} bytes`)
    }
    // What came before a break is kept; only attempts that bring nothing use up patience.
    await this.attempts(name, options, fetchRest, () => got)
  }

  /**
   * A whole file from a host that sends no parts, in order; `take` gets each byte once. A break costs what came before it, which
   * is sent again and passed over.
   */
  async stream(
    name: string,
    size: number,
    take: (chunk: Uint8Array) => void,
    options: RangeOptions = {},
  ): Promise<void> {
    let taken = 0
    const fetchAgain = async (signal: AbortSignal) => {
      const response = await this.request(name, { cache: 'no-store', signal })
      this.checkStatus(name, response, 200)
      this.checkSame(name, response, size)
      let at = 0
      await this.readBody(name, response, signal, chunk => {
        this.counters.bytes += chunk.length
        const isNew = chunk.subarray(Math.max(0, taken - at))
        at += chunk.length
        if (at > size) throw this.error('SHORT_BODY', name, `sent more than its ${size} bytes`)
        if (isNew.length > 0) take(isNew)
        taken = Math.max(taken, at)
      })
      if (at < size) throw this.error('UNREACHABLE', name, `the connection broke off after ${at} of ${size} bytes`)
    }
    await this.attempts(name, options, fetchAgain, () => taken)
  }

  /** Runs `work` until it does, or it will not. Attempts that moved `progress` on are not held against it. */
  private async attempts<T>(
    name: string,
    { signal, once }: RangeOptions,
    work: (signal: AbortSignal) => Promise<T>,
    progress = () => 0,
  ): Promise<T> {
    for (let failures = 0; ; ) {
      signal?.throwIfAborted()
      const before = progress()
      const own = new AbortController()
      const forward = () => own.abort(signal?.reason)
      signal?.addEventListener('abort', forward, { once: true })
      try {
        return await work(own.signal)
      } catch (error) {
        signal?.throwIfAborted()
        failures = progress() > before ? 1 : failures + 1
        const pause = once || isOffline() || !isTransient(error) ? undefined : PAUSES_MS[failures - 1]
        if (pause === undefined) {
          throw error instanceof FetchError ? error : this.error('UNREACHABLE', name, String(error), { cause: error })
        }
        await sleep(pause, signal)
      } finally {
        signal?.removeEventListener('abort', forward)
        own.abort() // what is left of the answer is not wanted
      }
    }
  }

  private async request(name: string, init: RequestInit): Promise<Response> {
    this.counters.requests++
    try {
      const headers = { ...this.headers, ...(init.headers as Record<string, string> | undefined) }
      const response = await withPatience(this.send(this.url(name), { ...init, headers }), init.signal as AbortSignal)
      this.offline = false
      return response
    } catch (cause) {
      if (!init.signal?.aborted) this.offline = true
      throw this.error('UNREACHABLE', name, 'the server cannot be reached', { cause })
    }
  }

  private async readBody(name: string, response: Response, signal: AbortSignal, take: (chunk: Uint8Array) => void) {
    const reader = response.body?.getReader()
    if (reader === undefined) return
    for (;;) {
      let chunk: ReadableStreamReadResult<Uint8Array>
      try {
        chunk = await withPatience(reader.read(), signal)
      } catch (cause) {
        throw this.error('UNREACHABLE', name, 'the connection broke off', { cause })
      }
      if (chunk.done) return
      take(chunk.value)
    }
  }

  private checkStatus(name: string, { status, statusText }: Response, want: number): void {
    if (status === want) return
    throw this.error('HTTP_STATUS', name, `the server answered ${status} ${statusText}`.trim(), { status })
  }

  private checkPart(name: string, response: Response): void {
    if (response.status === 200) {
      throw this.error('NO_RANGES', name, 'the server sends whole files only (no HTTP range requests)', { status: 200 })
    }
    this.checkStatus(name, response, 206)
  }

  private checkSame(name: string, response: Response, size: number): void {
    const now = { size: totalOf(response) ?? size, tag: tagOf(response) }
    const before = this.seen.get(name) ?? { size, tag: now.tag }
    if (now.size !== before.size || (now.tag !== '' && before.tag !== '' && now.tag !== before.tag)) {
      const detail = `the file changed on the server (${before.size} bytes, now ${now.size}): open the model again`
      throw this.error('FILE_CHANGED', name, detail)
    }
    this.seen.set(name, now)
  }

  private error(
    code: FetchError['code'],
    name: string,
    detail: string,
    options?: { status?: number; cause?: unknown },
  ): FetchError {
    return new FetchError(code, this.url(name), detail, options)
  }
}

/** Writes what comes into one target after the other. */
class ScatterWriter {
  private target = 0
  private at = 0 // in it

  constructor(private readonly targets: readonly Uint8Array[]) {}

  write(chunk: Uint8Array): void {
    for (let from = 0; from < chunk.length; ) {
      const target = this.targets[this.target]
      const part = chunk.subarray(from, from + target.length - this.at)
      target.set(part, this.at)
      from += part.length
      this.at += part.length
      if (this.at < target.length) return
      this.target++
      this.at = 0
    }
  }
}

function isTransient(error: unknown): boolean {
  if (!(error instanceof FetchError)) return true
  if (error.code === 'UNREACHABLE') return true
  const { status } = error
  return error.code === 'HTTP_STATUS' && (status === 408 || status === 429 || (status !== null && status >= 500))
}

function isOffline(): boolean {
  return globalThis.navigator?.onLine === false
}

/** A server on another origin may hide these headers; the body's length is checked in any case. */
function tagOf({ headers }: Response): string {
  return headers.get('etag') ?? headers.get('last-modified') ?? ''
}

function totalOf({ headers }: Response): number | null {
  const match = /^bytes (?:\d+-\d+|\*)\/(\d+)$/.exec(headers.get('content-range') ?? '')
  return match === null ? null : Number(match[1])
}

async function withPatience<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined
  let abort = () => {}
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came for ${IDLE_MS / 1000} s`)), IDLE_MS)
    abort = () => reject(signal.reason)
    signal.addEventListener('abort', abort)
  })
  try {
    return await Promise.race([work, limit])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', abort)
  }
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(done, ms)
    function done() {
      signal?.removeEventListener('abort', abort)
      resolve()
    }
    function abort() {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    signal?.addEventListener('abort', abort, { once: true })
  })
}
