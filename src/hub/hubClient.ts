// Asks a hub (Hugging Face's, or one that speaks like it) which files a model has at a commit, and for bytes of them.
// Downloads nothing by itself.
import { setTimeout as sleep } from 'node:timers/promises'
import { HubError } from '../errors.js'

export interface HubOptions {
  readonly endpoint?: string // default HF_ENDPOINT, or https://huggingface.co
  readonly token?: string // default HF_TOKEN
}

export interface HubFile {
  readonly path: string
  readonly size: number
  /** Of large files the SHA-256 of their bytes; of small ones the id that git gives them. */
  readonly checksum: { readonly kind: 'sha256' | 'git'; readonly hex: string } | null
}

const ID = /^[\w.-]+\/[\w.-]+$/
const MAX_PAGES = 100
const SMALL_ATTEMPTS = 5
const SMALL_RETRY_MS = 250

export class HubClient {
  readonly endpoint: string
  private readonly token: string | undefined

  constructor(
    readonly id: string,
    options: HubOptions = {},
    environment: NodeJS.ProcessEnv = process.env,
  ) {
    if (!ID.test(id) || id.includes('..')) throw new HubError(id, "is not a hub id, want 'owner/name'")
    const endpoint = options.endpoint ?? (environment.HF_ENDPOINT || 'https://huggingface.co')
    if (!/^https?:\/\//.test(endpoint)) throw new HubError(id, `the endpoint '${endpoint}' is not an http address`)
    this.endpoint = endpoint.replace(/\/+$/, '')
    this.token = options.token ?? (environment.HF_TOKEN || undefined)
  }

  /** The commit that a branch or tag stands for. */
  async commit(revision: string, signal?: AbortSignal): Promise<string> {
    const url = `${this.endpoint}/api/models/${this.id}/revision/${encodeURIComponent(revision)}`
    const { sha } = (parseJson((await this.fetchSmall(url, {}, signal)).bytes) ?? {}) as { sha?: unknown }
    if (typeof sha !== 'string' || !/^[0-9a-f]{7,64}$/.test(sha)) throw new HubError(this.id, `${url} names no commit`)
    return sha
  }

  async files(commit: string, signal?: AbortSignal): Promise<Map<string, HubFile>> {
    const files = new Map<string, HubFile>()
    let url: string | null = `${this.endpoint}/api/models/${this.id}/tree/${commit}?recursive=true`
    for (let page = 0; url !== null && page < MAX_PAGES; page++) {
      const { bytes, response } = await this.fetchSmall(url, {}, signal)
      const entries = parseJson(bytes)
      if (!Array.isArray(entries)) throw new HubError(this.id, `${url}: is not a list of files`)
      for (const entry of entries) {
        const file = parseEntry(entry)
        if (file !== null) files.set(file.path, file)
      }
      const next = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get('link') ?? '')?.[1]
      url = next === undefined ? null : new URL(next, url).href
    }
    return files
  }

  fileUrl(commit: string, path: string): string {
    return `${this.endpoint}/${this.id}/resolve/${commit}/${path.split('/').map(encodeURIComponent).join('/')}`
  }

  /** A whole answer of a few megabytes at most; tried again where the connection fails. */
  async fetchSmall(
    url: string,
    headers: Record<string, string>,
    signal?: AbortSignal,
  ): Promise<{ bytes: Uint8Array; response: Response }> {
    for (let attempt = 1; ; attempt++) {
      try {
        const response = await this.ask(url, headers, signal)
        return { bytes: new Uint8Array(await response.arrayBuffer()), response }
      } catch (error) {
        signal?.throwIfAborted()
        if (isFinal(error)) throw error
        if (attempt === SMALL_ATTEMPTS) {
          const cause = error instanceof Error ? (error.cause ?? error) : error
          throw new HubError(this.id, `${url}: ${(cause as Error).message ?? cause}`, { cause: error })
        }
        await sleep(SMALL_RETRY_MS * attempt, undefined, { signal })
      }
    }
  }

  /** A response with a good status. The key goes to the hub alone: where it sends on to, addresses are signed. */
  async ask(url: string, headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
    const authorization: Record<string, string> =
      this.token === undefined ? {} : { authorization: `Bearer ${this.token}` }
    // Lengths and ranges must be those of the file itself.
    const response = await fetch(url, {
      headers: { 'accept-encoding': 'identity', ...authorization, ...headers },
      signal,
    })
    if (response.ok) return response
    await response.body?.cancel()
    throw new HubError(this.id, reason(response.status, url, this.token !== undefined), { status: response.status })
  }
}

/** Not worth another try: the hub says no. */
export function isFinal(error: unknown): boolean {
  const status = error instanceof HubError ? error.status : null
  return status !== null && status < 500 && status !== 408 && status !== 429
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return null
  }
}

function reason(status: number, url: string, hasToken: boolean): string {
  if (status === 401 || status === 403) {
    return hasToken
      ? `${url}: the token has no access (${status})`
      : `${url}: needs a token (${status}): set HF_TOKEN; a gated model also wants its terms accepted`
  }
  return status === 404 ? `${url}: there is no such model, revision or file` : `${url}: answered ${status}`
}

function parseEntry(entry: unknown): HubFile | null {
  const { type, path, size, oid, lfs } = (entry ?? {}) as Record<string, unknown>
  if (type !== 'file' || typeof path !== 'string' || !Number.isSafeInteger(size)) return null
  const large = lfs as { oid?: unknown; size?: unknown } | undefined
  if (typeof large?.oid === 'string' && /^[0-9a-f]{64}$/.test(large.oid)) {
    return { path, size: Number(large.size ?? size), checksum: { kind: 'sha256', hex: large.oid } }
  }
  const isGit = typeof oid === 'string' && /^[0-9a-f]{40}$/.test(oid)
  return { path, size: size as number, checksum: isGit ? { kind: 'git', hex: oid } : null }
}
