// Asks a hub (Hugging Face's, or one that speaks like it) which files a model has at a commit, and for bytes of them.
// Downloads nothing by itself. The token goes to the hub's own origin (scheme, host and port) and nowhere else, and into
// no message.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Environment } from '../../base/environment.js'
import { HubError, MoefluxError } from '../../base/errors.js'
import { HUB_LIMITS, type HubLimits, StallGuard } from './hubLimits.js'

export interface HubOptions {
  readonly endpoint?: string // default HF_ENDPOINT, or https://huggingface.co
  readonly token?: string // default HF_TOKEN
  readonly limits?: Partial<HubLimits>
}

export interface HubFile {
  readonly path: string
  readonly size: number
  /** Of large files the SHA-256 of their bytes; of small ones the id that git gives them. */
  readonly checksum: { readonly kind: 'sha256' | 'git'; readonly hex: string } | null
}

interface SmallRequest {
  readonly headers?: Record<string, string>
  /** Throws where the body is not worth reading. */
  readonly check?: (response: Response) => void
  readonly mostBytes: number
  readonly mostMs?: number
  readonly signal?: AbortSignal
}

interface SmallAnswer {
  readonly bytes: Uint8Array
  readonly response: Response
}

const ID = /^[\w.-]+\/[\w.-]+$/
const RETRY_MS = 250
const REDIRECTS = new Set([301, 302, 303, 307, 308])

/** A hub, for one subject that its errors name: a model, or a search. */
export class Hub {
  readonly endpoint: string
  readonly limits: HubLimits
  protected readonly origin: string
  private readonly token: string | undefined

  constructor(
    readonly id: string,
    options: HubOptions = {},
    environment: Environment = process.env,
  ) {
    this.limits = { ...HUB_LIMITS, ...options.limits }
    const endpoint = parseEndpoint(id, options.endpoint ?? (environment.HF_ENDPOINT || 'https://huggingface.co'))
    this.endpoint = (endpoint.origin + endpoint.pathname).replace(/\/+$/, '')
    this.origin = endpoint.origin
    this.token = (options.token ?? environment.HF_TOKEN)?.trim() || undefined
    // Node's own message about a header that cannot be sent would show it.
    if (this.token !== undefined && !/^[\x21-\x7e]+$/.test(this.token)) {
      throw new HubError(id, 'the token (HF_TOKEN) holds blanks or characters that no token has')
    }
  }

  /** A response with a good status, of the hub or of where it sends on to; `url` is one of the hub. */
  async ask(url: string, headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
    let at = new URL(url)
    let isHub = true // once sent elsewhere, even back to the hub it is no question of ours any more
    for (let hops = 0; ; hops++) {
      isHub &&= at.origin === this.origin
      const authorization: Record<string, string> =
        isHub && this.token !== undefined ? { authorization: `Bearer ${this.token}` } : {}
      const response = await fetch(at, {
        // Lengths and ranges must be those of the file itself.
        headers: { 'accept-encoding': 'identity', ...headers, ...authorization },
        redirect: 'manual',
        signal,
      })
      if (response.ok) return response
      await response.body?.cancel()
      if (!REDIRECTS.has(response.status)) throw this.refusal(url, response.status, isHub ? null : at.host)
      if (hops === this.limits.redirects) {
        throw this.error(`${url}: is sent on more than ${this.limits.redirects} times`)
      }
      at = this.nextHop(url, at, response.headers.get('location'))
    }
  }

  /** An error of this hub. */
  error(detail: string, options: { status?: number; cause?: unknown } = {}): HubError {
    const shown = this.token === undefined ? detail : detail.replaceAll(this.token, '***')
    return new HubError(this.id, shown, options)
  }

  fetchAnswer(url: string, signal?: AbortSignal): Promise<SmallAnswer> {
    const { answerBytes, answerMs } = this.limits
    return this.fetchSmall(url, { mostBytes: answerBytes, mostMs: answerMs, signal })
  }

  /** A whole answer; tried again where the connection fails. */
  protected async fetchSmall(url: string, options: SmallRequest): Promise<SmallAnswer> {
    const { headers = {}, check, mostBytes, mostMs, signal } = options
    const { attempts } = this.limits
    for (let attempt = 1; ; attempt++) {
      const guard = new StallGuard(this.limits, mostMs)
      try {
        const signals = signal === undefined ? [guard.signal] : [guard.signal, signal]
        const response = await this.ask(url, headers, AbortSignal.any(signals))
        check?.(response)
        return { bytes: await this.readBody(url, response, mostBytes, guard), response }
      } catch (error) {
        signal?.throwIfAborted()
        if (isFinal(error)) throw error
        if (attempt === attempts) {
          const asked = `${withoutQuery(url)}: ${networkReason(error)} (asked ${attempts} times)`
          throw this.error(offlineReason(error, url) ?? asked, { cause: error })
        }
        await sleep(RETRY_MS * attempt, undefined, { signal })
      } finally {
        guard.end()
      }
    }
  }

  private async readBody(url: string, response: Response, most: number, guard: StallGuard): Promise<Uint8Array> {
    const pieces: Uint8Array[] = []
    let size = 0
    for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      size += piece.length
      if (size > most) throw this.error(`${url}: sends more than ${most} bytes`)
      pieces.push(piece)
      guard.got(piece.length)
    }
    return new Uint8Array(Buffer.concat(pieces))
  }

  private nextHop(url: string, from: URL, location: string | null): URL {
    const to = location !== null && URL.canParse(location, from) ? new URL(location, from) : null
    const why =
      to === null
        ? 'nowhere'
        : !/^https?:$/.test(to.protocol) || to.username !== '' || to.password !== ''
          ? 'to an address that is none of a file'
          : from.protocol === 'https:' && to.protocol === 'http:'
            ? `from https to http (${to.host})`
            : null
    if (to === null || why !== null) throw this.error(`${url}: is sent on ${why}`)
    return to
  }

  private refusal(url: string, status: number, elsewhere: string | null): HubError {
    return this.error(reason(status, withoutQuery(url), this.token !== undefined, elsewhere), { status })
  }
}

/** The hub, for one model. */
export class HubClient extends Hub {
  constructor(id: string, options: HubOptions = {}, environment: Environment = process.env) {
    if (!isHubId(id)) throw new HubError(id, "is not a hub id, want 'owner/name'")
    super(id, options, environment)
  }

  /** The commit that a branch or tag stands for. */
  async commit(revision: string, signal?: AbortSignal): Promise<string> {
    const url = `${this.endpoint}/api/models/${this.id}/revision/${encodeURIComponent(revision)}`
    const { sha } = (parseJson((await this.fetchAnswer(url, signal)).bytes) ?? {}) as { sha?: unknown }
    if (typeof sha !== 'string' || !/^[0-9a-f]{7,64}$/.test(sha)) throw this.error(`${url} names no commit`)
    return sha
  }

  async files(commit: string, signal?: AbortSignal): Promise<Map<string, HubFile>> {
    const { pages, files: mostFiles, listMs, fileBytes } = this.limits
    const files = new Map<string, HubFile>()
    const first = `${this.endpoint}/api/models/${this.id}/tree/${commit}?recursive=true`
    const deadline = performance.now() + listMs
    let url: string | null = first
    for (let page = 1; url !== null; page++) {
      if (page > pages) throw this.error(`${first}: the list of files has more than ${pages} pages`)
      if (performance.now() > deadline) throw this.error(`${first}: the list of files took more than ${listMs} ms`)
      const { bytes, response } = await this.fetchAnswer(url, signal)
      const entries = parseJson(bytes)
      if (!Array.isArray(entries)) throw this.error(`${url}: is not a list of files`)
      for (const entry of entries) {
        const file = parseEntry(entry)
        if (file === null) continue
        if (!(file.size >= 0 && file.size <= fileBytes)) {
          throw this.error(`${file.path}: the hub says ${file.size} bytes, want at most ${fileBytes}`)
        }
        files.set(file.path, file)
      }
      if (files.size > mostFiles) throw this.error(`${first}: lists more than ${mostFiles} files`)
      url = this.nextPage(url, response)
    }
    return files
  }

  fileUrl(commit: string, path: string): string {
    return `${this.endpoint}/${this.id}/resolve/${commit}/${path.split('/').map(encodeURIComponent).join('/')}`
  }

  /** The first `bytes` of a file of `size`. */
  async fetchStart(url: string, bytes: number, size: number, signal?: AbortSignal): Promise<Uint8Array> {
    const headers = { range: `bytes=0-${bytes - 1}` }
    const check = ({ status }: Response) => {
      if (status !== 206 && size > bytes) throw this.error(`${url}: does not send parts of files`)
    }
    const { bytes: got } = await this.fetchSmall(url, { headers, check, mostBytes: bytes, signal })
    if (got.length < bytes) throw this.error(`${url}: sent ${got.length} bytes, want ${bytes}`)
    return got
  }

  /** Lists of files come from the hub alone: what another origin would say of its files is nothing to go by. */
  private nextPage(url: string, response: Response): string | null {
    const next = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get('link') ?? '')?.[1]
    if (next === undefined) return null
    const address = URL.canParse(next, url) ? new URL(next, url) : null
    if (address?.origin !== this.origin || address.username !== '' || address.password !== '') {
      throw this.error(`${url}: its next page is at another origin than the hub (${address?.origin ?? 'no address'})`)
    }
    return address.href
  }
}

/** Not worth another try: the hub says no, or what it does is no accident; or the disk here is at fault. */
export function isFinal(error: unknown): boolean {
  if (!(error instanceof MoefluxError)) return (error as NodeJS.ErrnoException | null)?.syscall !== undefined
  const status = error instanceof HubError ? error.status : null
  return status === null || (status < 500 && status !== 408 && status !== 429)
}

/** 'owner/name'. */
export function isHubId(id: string): boolean {
  return ID.test(id) && !id.includes('..')
}

/** Codes of connections that were never made: this machine has no network, or no way to the host. */
const OFFLINE = ['ENOTFOUND', 'EAI_AGAIN', 'ENETUNREACH', 'ENETDOWN', 'EHOSTUNREACH']
/** The same where the host itself may be down; the last two are undici's and Bun's. */
const NO_ANSWER = ['ECONNREFUSED', 'ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT', 'ConnectionRefused']

/** Null: the host was reached. It may be another than that of `url`, which sent on to it. */
export function offlineReason(error: unknown, url: string): string | null {
  const { code = '', hostname } = (((error as Error).cause ?? error) as { code?: string; hostname?: string }) ?? {}
  const unreachable = `${hostname ?? new URL(url).host} cannot be reached`
  if (OFFLINE.includes(code)) return `${unreachable}: are you offline?`
  return NO_ANSWER.includes(code) ? `${unreachable} (${code})` : null
}

/** Node says 'fetch failed' and hides why. */
export function networkReason(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error
  return cause instanceof Error ? cause.message || (cause as NodeJS.ErrnoException).code || cause.name : String(cause)
}

function parseEndpoint(id: string, text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new HubError(id, `the endpoint '${text}' is not an http address`)
  }
  if (url.username !== '' || url.password !== '') {
    throw new HubError(id, `the endpoint at ${url.host} carries a name or password before its host: want none`)
  }
  if (url.search !== '' || url.hash !== '') {
    throw new HubError(id, `the endpoint '${url.origin}' is followed by '?' or '#': want an address alone`)
  }
  return url
}

/** As people know it. */
function withoutQuery(url: string): string {
  return url.replace(/\?.*$/s, '')
}

export function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return null
  }
}

function reason(status: number, url: string, hasToken: boolean, elsewhere: string | null): string {
  if (elsewhere !== null) return `${url}: ${elsewhere}, where the hub sends on to, answered ${status}`
  if (status === 401 || status === 403) {
    return hasToken
      ? `${url}: the token has no access (${status})`
      : `${url}: is not there, or needs a token (${status}): set HF_TOKEN; a gated model also wants its terms accepted`
  }
  return status === 404 ? `${url}: there is no such model, revision or file` : `${url}: answered ${status}`
}

function parseEntry(entry: unknown): HubFile | null {
  const { type, path, size, oid, lfs } = (entry ?? {}) as Record<string, unknown>
  if (type !== 'file' || typeof path !== 'string' || !Number.isSafeInteger(size)) return null
  // Names are shown to people, and a terminal obeys such characters.
  if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(path)) return null
  const large = lfs as { oid?: unknown; size?: unknown } | null | undefined
  if (typeof large?.oid === 'string' && /^[0-9a-f]{64}$/.test(large.oid)) {
    return { path, size: Number(large.size ?? size), checksum: { kind: 'sha256', hex: large.oid } }
  }
  const isGit = typeof oid === 'string' && /^[0-9a-f]{40}$/.test(oid)
  return { path, size: size as number, checksum: isGit ? { kind: 'git', hex: oid } : null }
}
