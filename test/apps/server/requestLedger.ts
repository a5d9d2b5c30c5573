// Counts what the requests of a server in this process hold: permits and body memory by its
// metrics; leases, timers and listeners by replacing what takes and returns them. For tests that
// have a process to themselves.
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { getEventListeners } from 'node:events'
import type { Socket } from 'node:net'
import { onTestFinished, vi } from 'vitest'
import { Metrics } from '#moeflux/apps/server/metrics.js'
import { type Lease, type Loadable, ModelShelf } from '#moeflux/apps/server/modelPool.js'

export interface Held {
  readonly permits: number
  readonly bodyBytes: number
  readonly leases: number
  readonly timers: readonly number[] // delays in milliseconds
  readonly signalListeners: number // of signals that outlive requests
  readonly socketListeners: number // beyond those that Node adds
}

export interface RequestLedger {
  /** Right after the first request has been answered, and at any later time. */
  held(): Promise<Held>
  /** Calls what a timer of that delay would call. Throws when there is none. */
  fire(delayMs: number): void
}

/**
 * Runs `start`, which starts a server, and counts until the test ends. Timers of the delays
 * `ignoredMs` do not count.
 */
export async function withLedger<T>(
  ignoredMs: readonly number[],
  start: () => Promise<T>,
  onLease: () => Promise<void> = async () => {},
): Promise<RequestLedger & { server: T }> {
  onTestFinished(() => {
    vi.restoreAllMocks()
    vi.unstubAllGlobals()
  })
  const metrics = vi.spyOn(Metrics.prototype, 'request')
  const leases = countLeases(onLease)
  const timers = countTimers()
  const sockets = countSocketListeners()
  const { result: server, signals } = await signalsOf(start)
  return {
    server,
    async held() {
      const text = await (metrics.mock.contexts[0] as Metrics).registry.metrics()
      const value = (name: string) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1])
      return {
        permits: value('moeflux_requests_active'),
        bodyBytes: value('moeflux_body_bytes'),
        leases: leases(),
        timers: timers.delays().filter(delay => !ignoredMs.includes(delay)),
        signalListeners: signals.reduce((sum, signal) => sum + getEventListeners(signal, 'abort').length, 0),
        socketListeners: sockets(),
      }
    },
    fire: timers.fire,
  }
}

/** `onLease` is called for a request whose model is loaded, before it gets the lease. */
function countLeases(onLease: () => Promise<void>): () => number {
  let leases = 0
  const { acquire } = ModelShelf.prototype
  vi.spyOn(ModelShelf.prototype, 'acquire').mockImplementation(async function (this: unknown, ...args) {
    const lease: Lease<Loadable> = await acquire.apply(this as ModelShelf<Loadable>, args)
    leases++
    await onLease()
    let isReleased = false
    const release = () => {
      if (!isReleased) leases--
      isReleased = true
      lease.release()
    }
    return { ...lease, release }
  })
  return () => leases
}

function countTimers() {
  const pending = new Map<unknown, { readonly delay: number; readonly run: () => void }>()
  const { setTimeout: set, clearTimeout: clear } = globalThis
  vi.stubGlobal('setTimeout', (callback: (...args: unknown[]) => void, delay = 0, ...args: unknown[]) => {
    const run = () => {
      pending.delete(timer)
      callback(...args)
    }
    const timer = set(run, delay)
    const caller = new Error().stack?.split('\n')[2] ?? ''
    if (caller.includes('/dist/apps/server/')) pending.set(timer, { delay, run }) // others belong to clients
    return timer
  })
  vi.stubGlobal('clearTimeout', (timer: NodeJS.Timeout) => {
    pending.delete(timer)
    clear(timer)
  })
  return {
    delays: () => [...pending.values()].map(({ delay }) => delay),
    fire(delayMs: number) {
      const found = [...pending].find(([, { delay }]) => delay === delayMs)
      if (found === undefined) throw new Error(`no timer of ${delayMs} ms`)
      clear(found[0] as NodeJS.Timeout)
      found[1].run()
    },
  }
}

function countSocketListeners(): () => number {
  const atStart = new Map<Socket, number>()
  const count = (socket: Socket) => socket.listenerCount('end') + socket.listenerCount('close')
  const onRequest = (message: unknown) => {
    const { socket } = message as { socket: Socket }
    if (!atStart.has(socket)) atStart.set(socket, count(socket))
  }
  subscribe('http.server.request.start', onRequest)
  onTestFinished(() => void unsubscribe('http.server.request.start', onRequest))
  return () => {
    const open = [...atStart].filter(([socket]) => !socket.destroyed)
    return open.reduce((sum, [socket, start]) => sum + count(socket) - start, 0)
  }
}

/** The signals that are made while `start` runs. */
async function signalsOf<T>(start: () => Promise<T>): Promise<{ result: T; signals: readonly AbortSignal[] }> {
  const { AbortController: Original } = globalThis
  const signals: AbortSignal[] = []
  globalThis.AbortController = class extends Original {
    constructor() {
      super()
      signals.push(this.signal)
    }
  }
  try {
    return { result: await start(), signals }
  } finally {
    globalThis.AbortController = Original
  }
}
