// Who may talk to the server: the Host header must name this machine as it was told to answer to (or a page elsewhere
// could reach it through DNS), a foreign Origin must be allowed explicitly, and where there is a key it must be right.
import { createHash, timingSafeEqual } from 'node:crypto'
import { isIP } from 'node:net'
import { hostname } from 'node:os'
import { ApiError } from './apiError.js'

export interface GuardOptions {
  /** One key, or several: of people who share the server. */
  readonly apiKey?: string | readonly string[]
  /** Origins that pages may call from, or '*'. */
  readonly corsOrigins?: readonly string[]
  /** Further names by which the server may be addressed. */
  readonly allowedHosts?: readonly string[]
  readonly host: string // that it listens on
}

const LOCAL_NAMES = ['localhost', '127.0.0.1', '[::1]']

export class Guard {
  private readonly hosts: ReadonlySet<string>
  private readonly isEverywhere: boolean
  private readonly keyHashes: readonly Buffer[]

  constructor(private readonly options: GuardOptions) {
    const own = hostname()
    this.isEverywhere = options.host === '0.0.0.0' || options.host === '::'
    const machine = this.isEverywhere ? [own, `${own}.local`] : []
    const names = [...LOCAL_NAMES, options.host, ...machine, ...(options.allowedHosts ?? [])]
    this.hosts = new Set(names.map(name => name.toLowerCase()))
    const { apiKey = [] } = options
    this.keyHashes = (typeof apiKey === 'string' ? [apiKey] : apiKey).map(hash)
  }

  /** Throws for a request that must not be answered. `open` paths need no key. Returns what tells keys apart; '' for none. */
  check(request: Request, open: boolean): string {
    const host = (request.headers.get('host') ?? '').toLowerCase()
    if (!this.answersTo(host.replace(/:\d+$/, ''))) {
      throw new ApiError('permission', `host '${host}' is not a name of this server (allow it with --allow-host)`)
    }
    const origin = request.headers.get('origin')
    if (origin !== null && !this.allowsOrigin(origin, host)) {
      throw new ApiError('permission', `origin '${origin}' is not allowed (allow it with --cors)`)
    }
    return open || this.keyHashes.length === 0 ? '' : this.checkKey(request)
  }

  /** The value of access-control-allow-origin for an origin, or null. */
  corsOrigin(origin: string | null): string | null {
    if (origin === null) return null
    const allowed = this.options.corsOrigins ?? []
    if (allowed.includes('*')) return '*'
    return allowed.includes(origin) ? origin : null
  }

  /** On all networks the machine is also known by its addresses, which no DNS entry of someone else's can imitate. */
  private answersTo(name: string): boolean {
    if (this.hosts.has('*') || this.hosts.has(name)) return true
    return this.isEverywhere && isIP(name.replace(/^\[|\]$/g, '')) !== 0
  }

  private allowsOrigin(origin: string, host: string): boolean {
    if (this.corsOrigin(origin) !== null) return true
    try {
      return new URL(origin).host.toLowerCase() === host
    } catch {
      return false
    }
  }

  private checkKey(request: Request): string {
    const bearer = /^Bearer\s+(.+)$/i.exec(request.headers.get('authorization') ?? '')?.[1]
    const key = bearer ?? request.headers.get('x-api-key')
    if (key === null || key === undefined) {
      throw new ApiError('authentication', 'no API key: send it as Authorization: Bearer … or x-api-key')
    }
    const given = hash(key)
    // All are compared: how long it takes tells nothing.
    if (this.keyHashes.filter(own => timingSafeEqual(given, own)).length === 0) {
      throw new ApiError('authentication', 'the API key is wrong')
    }
    return given.toString('hex').slice(0, 32)
  }
}

function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
