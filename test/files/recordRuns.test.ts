// Experts of a file on a server, fetched together where they are neighbours: right bytes for everybody who asked, or the
// error that the request ended with, wherever it breaks.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { startAsyncReaders } from '#moeflux/experts/readers/asyncReaders.js'
import { ReadRing, readState } from '#moeflux/experts/readers/readRing.js'
import { MAX_RUN_BYTES, recordRuns } from '#moeflux/files/pieces/recordRuns.js'
import { RecordSource } from '#moeflux/files/pieces/recordSource.js'
import { RangeFetcher } from '#moeflux/files/rangeFetcher.js'

const RECORD = 100
const RECORDS = 16
const file = Uint8Array.from({ length: RECORD * RECORDS }, (_, i) => (i * 7 + (i >> 8)) & 255)
const recordAt = (record: number) => file.slice(record * RECORD, (record + 1) * RECORD)

interface Answer {
  /** Bytes of the body that come before the connection breaks. */
  readonly cutAt?: number
  readonly status?: number
  readonly waits?: boolean
}

/** A file on a server that answers the n-th request as told, and later ones as it should, or whole where it sends no parts. */
function remoteFile(answers: readonly Answer[] = [], { wholeOnly = false, keeps = true } = {}) {
  const requests: [number, number][] = []
  const send = async (_: string, init: RequestInit): Promise<Response> => {
    const range = (init.headers as Record<string, string>).Range ?? `bytes=0-${file.length - 1}`
    const [begin, last] = range.slice(6).split('-').map(Number)
    const { cutAt, status = wholeOnly ? 200 : 206, waits } = answers[requests.length] ?? {}
    requests.push([begin, last + 1])
    if (waits) await new Promise((_, reject) => init.signal?.addEventListener('abort', () => reject(new Error('gone'))))
    const bytes = status === 200 ? file : file.slice(begin, last + 1)
    const body = new ReadableStream({
      start(controller) {
        if (cutAt !== 0) controller.enqueue(bytes.slice(0, cutAt))
        if (cutAt === undefined) controller.close()
      },
      pull: controller => controller.error(new Error('broken off')),
    })
    const headers: HeadersInit = status === 206 ? { 'content-range': `bytes ${begin}-${last}/${file.length}` } : {}
    return new Response(status >= 400 ? null : body, { status, headers })
  }
  const kept = new Map<number, Uint8Array>()
  const store = {
    count: 0,
    has: (key: number) => kept.has(key),
    read: async (key: number, target: Uint8Array) => {
      target.set(kept.get(key) ?? [])
      return true
    },
    write: (key: number, bytes: Uint8Array) => void kept.set(key, bytes.slice()),
    drop: (begin: number, end: number) => {
      for (let key = begin; key < end; key++) kept.delete(key)
    },
    close() {},
  }
  const traffic = { networkReads: 0, networkBytes: 0, cacheReads: 0, cacheBytes: 0, spareReads: 0, spareBytes: 0 }
  const cache = { writable: keeps, store: async (write: () => void) => write() }
  const fetcher = new RangeFetcher('http://host/', {}, send)
  let told = 0
  const onWholeFiles = () => void told++
  const home = { fetcher, cache, traffic, onWholeFiles } as unknown as ConstructorParameters<typeof RecordSource>[3]
  const layout = { recordBytes: RECORD, firstKey: 1000, store, version: '' }
  return { source: new RecordSource('f', file.length, layout, home), requests, kept, traffic, told: () => told }
}

async function readAll(source: RecordSource, records: readonly number[], signal?: AbortSignal) {
  const targets = records.map(() => new Uint8Array(RECORD))
  const ends = await Promise.allSettled(records.map((record, i) => source.read(record * RECORD, targets[i], signal)))
  return ends.map((end, i) => (end.status === 'fulfilled' ? targets[i] : (end.reason as Error)))
}

describe('which records are fetched together', () => {
  const wanted = fc.array(fc.record({ record: fc.nat(60), other: fc.boolean() }), { maxLength: 40 })
  const another = new AbortController().signal

  test('everything that is wanted, once, within bounds', () => {
    fc.assert(
      fc.property(wanted, fc.constantFrom(1000, 60_000, 200_000, 3_000_000, 9_000_000), (list, recordBytes) => {
        const asked = list.map(({ record, other }) => ({ record, signal: other ? another : undefined }))
        const runs = recordRuns(asked, recordBytes)
        expect(runs.flatMap(({ records }) => records.flat()).length).toBe(asked.length)
        for (const { first, records, signal } of runs) {
          const count = records.filter(each => each.length > 0).length
          expect(records.length === 1 || records.length * recordBytes <= MAX_RUN_BYTES).toBe(true)
          expect(records.length - count).toBeLessThanOrEqual(count / 4)
          expect(records[0].length * records[records.length - 1].length).toBeGreaterThan(0)
          records.forEach((each, i) => {
            for (const one of each) expect([one.record, one.signal]).toEqual([first + i, signal])
          })
        }
      }),
    )
  })

  test('neighbours in one, large ones without those between them', () => {
    const runsOf = (records: number[], bytes: number) =>
      recordRuns(
        records.map(record => ({ record, signal: undefined })),
        bytes,
      ).map(({ first, records }) => [first, records.length])
    expect(runsOf([5, 1, 2, 3, 4], 1.7e6)).toEqual([
      [1, 4],
      [5, 1],
    ])
    expect(runsOf([1, 2, 4, 5, 7], 1.7e6)).toHaveLength(3)
    expect(runsOf([1, 2, 3, 4, 6, 7, 8, 9], 50_000)).toEqual([[1, 9]])
  })
})

describe('records of a file on a server', () => {
  test('come with one request, also to two that want the same, and stay', async () => {
    const { source, requests, kept, traffic } = remoteFile()
    const records = [4, 0, 1, 2, 2, 5, 6, 7]
    expect(await readAll(source, records)).toEqual(records.map(recordAt))
    expect(requests).toEqual([[0, 800]])
    expect(traffic).toMatchObject({ networkReads: 8, spareReads: 1, cacheReads: 0 })
    expect(kept.get(1003)).toEqual(recordAt(3)) // lay between them
    expect(await readAll(source, [3, 1])).toEqual([recordAt(3), recordAt(1)])
    expect(requests).toHaveLength(1)
    source.forget(300, 100)
    expect(await readAll(source, [3])).toEqual([recordAt(3)])
    expect(requests.at(-1)).toEqual([300, 400])
  })

  test('are right wherever the connection breaks, and what came is not fetched twice', async () => {
    for (const cutAt of [1, 50, 99, 100, 101, 199, 200, 250, 299]) {
      const { source, requests, kept } = remoteFile([{ cutAt }])
      expect(await readAll(source, [1, 2, 3]), `cut at ${cutAt}`).toEqual([1, 2, 3].map(recordAt))
      expect(requests).toEqual([
        [100, 400],
        [100 + cutAt, 400],
      ])
      expect(kept.size).toBe(3)
    }
  })

  test('that were whole before the server failed for good are there; the others get its error', async () => {
    const failing = { status: 403 }
    const { source, kept } = remoteFile([{ cutAt: 150 }, failing, failing])
    const [one, two, three] = await readAll(source, [1, 2, 3])
    expect(one).toEqual(recordAt(1))
    for (const error of [two, three]) expect(error).toMatchObject({ code: 'HTTP_STATUS', status: 403 })
    expect([...kept.keys()]).toEqual([1001])
    expect(await readAll(source, [2, 3])).toMatchObject([{ status: 403 }, { status: 403 }])
    expect(await readAll(source, [2, 3])).toEqual([recordAt(2), recordAt(3)])
  })

  test('of a server that sends whole files only come with one of them, and all are kept', async () => {
    const { source, requests, kept, told } = remoteFile([], { wholeOnly: true })
    expect(await readAll(source, [14, 1, 2, 1])).toEqual([14, 1, 2, 1].map(recordAt))
    await expect.poll(() => kept.size).toBe(RECORDS)
    expect(requests.at(-1)).toEqual([0, file.length])
    expect(told()).toBeGreaterThan(0)
    const before = requests.length
    expect(await readAll(source, [0, 15])).toEqual([0, 15].map(recordAt))
    expect(requests).toHaveLength(before)
  })

  test('of such a server are right wherever it breaks off, and get its error where it fails for good', async () => {
    for (const cutAt of [0, 1, 100, 250, 1599]) {
      const broken = remoteFile([{ status: 200 }, { status: 200 }, { status: 200, cutAt }], { wholeOnly: true })
      expect(await readAll(broken.source, [2, 15]), `cut at ${cutAt}`).toEqual([2, 15].map(recordAt))
      expect(broken.requests).toHaveLength(4) // two runs that are answered whole, the whole file, and once more
    }
    const failing = remoteFile([{ status: 200 }, { status: 403 }], { wholeOnly: true })
    expect(await readAll(failing.source, [2, 3])).toMatchObject([{ status: 403 }, { status: 403 }])
    expect(await readAll(failing.source, [2, 3])).toEqual([2, 3].map(recordAt))
  })

  test('of such a server are refused where nothing can be kept', async () => {
    const { source } = remoteFile([], { wholeOnly: true, keeps: false })
    expect(await readAll(source, [1, 2])).toMatchObject([{ code: 'NO_RANGES' }, { code: 'NO_RANGES' }])
  })

  test('whoever leaves takes nobody along that has another signal', async () => {
    const { source } = remoteFile([{ waits: true }])
    const leaving = new AbortController()
    const left = readAll(source, [1, 2], leaving.signal)
    const stays = readAll(source, [3])
    setTimeout(() => leaving.abort(new Error('left')), 20)
    expect(await stays).toEqual([recordAt(3)])
    expect(await left).toMatchObject([{ message: 'left' }, { message: 'left' }])
  })
})

test('reads that wait in the ring are taken up with their neighbours, demands and reads ahead apart', async () => {
  const { source, requests } = remoteFile()
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true })
  const readers = startAsyncReaders({ files: [source, source], memories: [memory], entries: 16, shared: true })
  const ring = new ReadRing(readers.ring)
  const ask = (entry: number, file: number, record: number, ahead: boolean) =>
    ring.submit(entry, { file, offset: record * RECORD, size: RECORD, bank: 0, target: entry * RECORD }, ahead)
  // Out of order, as guesses are; one is called off before anybody comes.
  for (const [entry, record] of [9, 3, 10, 8, 11].entries()) ask(entry, 0, record, true)
  for (const [entry, record] of [0, 1, 2].entries()) ask(5 + entry, 0, record, false)
  expect(ring.cancel(1)).toBe(true)
  const asked = [0, 2, 3, 4, 5, 6, 7]
  await expect.poll(() => asked.every(entry => ring.state(entry) === readState.done)).toBe(true)
  expect(ring.state(1)).toBe(readState.idle)
  const bytes = new Uint8Array(memory.buffer)
  const got = (entry: number) => bytes.slice(entry * RECORD, (entry + 1) * RECORD)
  expect(asked.map(got)).toEqual([9, 10, 8, 11, 0, 1, 2].map(recordAt))
  expect(requests.sort(([a], [b]) => a - b)).toEqual([
    [0, 300],
    [800, 1200],
  ])
  await readers.close()
})
