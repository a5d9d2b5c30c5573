// The main thread's side of compute workers, with threads that do as they are told: whatever happens in whatever order,
// every promise settles, with the right error, and nothing is settled while a thread may still write.
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { ThreadEvents } from '#moeflux/backends/wasm/platform.js'
import type { ComputeSetup } from '#moeflux/backends/wasm/workers/computeLoop.js'
import { JobBoard } from '#moeflux/backends/wasm/workers/jobBoard.js'
import { WorkerPool } from '#moeflux/backends/wasm/workers/workerPool.js'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const THREADS = 2
const shape = { threads: THREADS, chunkTokens: 1, layers: 1, fullLayers: 0, moeLayers: 1, experts: 1, headRows: 1 }

async function startPool() {
  const board = new JobBoard(shape)
  const threads: { events: ThreadEvents; alive: boolean }[] = []
  const host = {
    startThread(_: ComputeSetup, events: ThreadEvents) {
      const thread = { events, alive: true }
      threads.push(thread)
      queueMicrotask(() => events.report({ kind: 'ready' }))
      return {
        setRef() {},
        async terminate() {
          await Promise.resolve()
          end(thread, null)
        },
      }
    },
  }
  const end = (thread: (typeof threads)[number], error: Error | null) => {
    if (!thread.alive) return
    thread.alive = false
    thread.events.ended(error)
  }
  const setups = Array.from({ length: THREADS }, (_, index) => ({ index }) as ComputeSetup)
  const pool = await WorkerPool.start(setups, new JobBoard(shape, new SharedArrayBuffer(board.size)), host)
  return { pool, threads, end }
}

const events = {
  done: 'the leader reports that the job is done',
  failed: 'the leader reports a read that failed',
  abort: 'the caller aborts',
  leaderDies: 'the leader dies',
  otherDies: 'another worker dies',
  close: 'the pool is closed',
} as const
type Event = keyof typeof events

/** All orders of up to three different events. */
function orders(): Event[][] {
  const names = Object.keys(events) as Event[]
  const longer = (list: Event[][]) => list.flatMap(o => names.filter(n => !o.includes(n)).map(n => [...o, n]))
  const one = names.map(name => [name])
  const two = longer(one)
  return [...one, ...two, ...longer(two)]
}

test.each(orders().map(order => [order]))('%j', async order => {
  const { pool, threads, end } = await startPool()
  const controller = new AbortController()
  let isSettled = false
  const job = pool.run(THREADS, controller.signal).then(
    () => 'done',
    (error: Error & { code?: string }) => error.code ?? error.message,
  )
  let writers = 0 // threads when the job was over
  void job.then(() => {
    isSettled = true
    writers = threads.filter(thread => thread.alive).length
  })
  let closed: Promise<void> | null = null
  let reported: Event | null = null
  for (const event of order) {
    const { alive } = threads[0]
    if (event === 'abort') controller.abort(new Error('enough'))
    else if (event === 'close') closed = pool.close()
    else if (event === 'leaderDies') end(threads[0], new Error('a trap'))
    else if (event === 'otherDies') end(threads[1], null)
    else if (alive && !reported) {
      reported = event
      const read = { layer: 0, expert: 1, file: 'f', offset: 0, detail: 'gone' }
      threads[0].events.report(
        event === 'done' ? { kind: 'done' } : { kind: 'failed', failure: { message: 'm', read } },
      )
    }
    await vi.advanceTimersByTimeAsync(0)
  }
  const deaths = order.filter(event => event === 'leaderDies' || event === 'otherDies')
  // Nobody has said anything yet: the job goes on.
  if (!reported && deaths.length === 0 && !closed) {
    expect(isSettled).toBe(false)
    closed = pool.close()
  }
  await vi.advanceTimersByTimeAsync(10_000)
  const firstEnd = order.find(event => !['abort', 'close'].includes(event))
  if (reported && firstEnd === reported) expect(await job).toBe(reported === 'done' ? 'done' : 'EXPERT_READ')
  else expect(await job).toBe(firstEnd === undefined ? 'CLOSED' : 'DEVICE_LOST')
  if (['DEVICE_LOST', 'CLOSED'].includes(await job)) expect(writers).toBe(0)
  const later = pool.run(1).catch((error: { code?: string }) => error.code)
  closed ??= pool.close()
  await vi.advanceTimersByTimeAsync(10_000)
  await closed
  expect(await later).toBe(pool.failure && deaths.length > 0 ? 'DEVICE_LOST' : 'CLOSED')
  expect(threads.some(thread => thread.alive)).toBe(false)
})
