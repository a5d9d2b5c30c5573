// Looks after the server while the page is seen: notices that it went, without anyone asking it anything, and that it is
// back. A page in the background asks nobody.
import type { ServerEngine } from '../engines/serverEngine.js'
import { isServerThere } from '../engines/serverEngine.js'
import type { Failure } from './conversation.js'

const THERE_MS = 5000
const GONE_MS = 1500

export type ServerState =
  | { readonly status: 'connecting' | 'none' }
  | { readonly status: 'ready'; readonly engine: ServerEngine }
  /** It was there; it is looked for until it is back. */
  | { readonly status: 'lost'; readonly engine: ServerEngine; readonly failure: Failure }
  | { readonly status: 'failed'; readonly failure: Failure }

export interface ServerWatchOptions {
  /** Answers come from the server, or would. */
  isWanted(): boolean
  state(): ServerState
  onGone(): void
  connect(): Promise<void>
}

export class ServerWatch {
  private timer: ReturnType<typeof setTimeout> | undefined
  private isLooking = false

  constructor(private readonly options: ServerWatchOptions) {}

  start(): void {
    addEventListener('online', () => void this.look())
    document.addEventListener('visibilitychange', () => void this.look())
    this.later()
  }

  /** Looks now, and then on. */
  async look(): Promise<void> {
    if (this.isLooking) return
    this.isLooking = true
    try {
      if (!document.hidden && this.options.isWanted()) await this.once()
    } finally {
      this.isLooking = false
      this.later()
    }
  }

  private async once(): Promise<void> {
    const state = this.options.state()
    if (state.status === 'ready' && !(await isServerThere())) this.options.onGone()
    // A key that is missing or wrong is not helped by asking again.
    const isGone = state.status === 'lost' || (state.status === 'failed' && state.failure.kind !== 'unauthorized')
    if (isGone) await this.options.connect()
  }

  private later(): void {
    clearTimeout(this.timer)
    const { status } = this.options.state()
    this.timer = setTimeout(() => void this.look(), status === 'ready' ? THERE_MS : GONE_MS)
  }
}
