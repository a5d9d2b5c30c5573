// How often a read is tried, and what is counted on the way.
import { describe, expect, test } from 'vitest'
import { FetchError, ReadError } from '#moeflux/base/errors.js'
import { noReads, ReadCounters, ReadMeter } from '#moeflux/experts/readers/readCounters.js'
import { ReadTries, readPatiently } from '#moeflux/files/readRetries.js'
import type { ByteSource } from '#moeflux/files/source.js'

/** Fails with these errors, one after the other, then gives sevens. */
function sourceThat(...errors: Error[]) {
  const state = { reads: 0 }
  const source: ByteSource = {
    name: 'file',
    size: 100,
    close: async () => {},
    read: async (_offset, target) => {
      const error = errors[state.reads++]
      if (error !== undefined) throw error
      target.fill(7)
    },
  }
  return { source, state }
}
const bad = () => new ReadError('file', 0, 4, 'EIO')

describe('tries', () => {
  test('are three, with pauses that grow', () => {
    const tries = new ReadTries()
    expect([tries.failed(), tries.failed(), tries.failed(), tries.failed()]).toEqual([2, 10, null, null])
  })

  test('get over what passes, and give up on what does not', async () => {
    let retries = 0
    const onRetry = () => {
      retries++
    }
    const target = new Uint8Array(4)
    const passing = sourceThat(bad(), bad())
    await readPatiently(passing.source, 0, target, { onRetry })
    expect([...target, retries, passing.state.reads]).toEqual([7, 7, 7, 7, 2, 3])
    const last = new ReadError('file', 0, 4, 'the last')
    const lasting = sourceThat(bad(), bad(), last, bad())
    await expect(readPatiently(lasting.source, 0, target)).rejects.toBe(last)
    expect(lasting.state.reads).toBe(3)
  })

  test('are the business of a source that tries by itself', async () => {
    const error = new FetchError('UNREACHABLE', 'file', 'nobody there')
    const { source, state } = sourceThat(error)
    await expect(readPatiently(source, 0, new Uint8Array(4))).rejects.toBe(error)
    expect(state.reads).toBe(1)
  })

  test('end with an abort', async () => {
    const controller = new AbortController()
    const { source, state } = sourceThat(bad(), bad())
    const onRetry = () => controller.abort(new Error('enough'))
    const options = { signal: controller.signal, onRetry }
    await expect(readPatiently(source, 0, new Uint8Array(4), options)).rejects.toThrow('enough')
    expect(state.reads).toBe(1)
  })
})

describe('counts', () => {
  test('of several readers add up, latencies by powers of two', () => {
    const shared = new Float64Array(2 * ReadCounters.length)
    const readers = [0, 1].map(i => new ReadCounters(shared.subarray(i * ReadCounters.length)))
    readers[0].ended(10, 0.1)
    readers[0].ended(20, 0.2)
    readers[1].ended(0, 1e9)
    readers[1].retried()
    const totals = noReads()
    for (const reader of readers) reader.addTo(totals)
    expect(totals).toMatchObject({ reads: 3, bytes: 30, retries: 1 })
    expect([totals.latency[0], totals.latency[1], totals.latency.at(-1)]).toEqual([1, 1, 1])
  })

  test('know how long anything was read at all', async () => {
    const meter = new ReadMeter()
    const wait = (ms: number) => meter.measure(5, () => new Promise(resolve => setTimeout(resolve, ms)))
    await Promise.all([wait(20), wait(20), wait(20)])
    await expect(meter.measure(5, () => Promise.reject(new Error('no')))).rejects.toThrow('no')
    const { reads, bytes, seconds, busySeconds } = meter.totals
    expect([reads, bytes]).toEqual([4, 15])
    expect(busySeconds).toBeGreaterThan(0)
    expect(busySeconds).toBeLessThan(seconds)
  })
})
