// The ranges of a Range header, which are refused, and what becomes of a file that is being read.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { byteRange, filePieces } from '#moeflux/apps/server/modelFiles.js'

test.each([
  [undefined, 'whole'],
  ['bytes=0-0', { start: 0, end: 1 }],
  ['bytes=2-', { start: 2, end: 10 }],
  ['bytes=2-99', { start: 2, end: 10 }],
  ['bytes=-3', { start: 7, end: 10 }],
  ['bytes=-99', { start: 0, end: 10 }],
  ['bytes=-0', 'unsatisfiable'],
  ['bytes=10-', 'unsatisfiable'],
  ['bytes=99999999999999999999-', 'unsatisfiable'],
  ['bytes=5-2', 'whole'],
  ['bytes=0-1,4-5', 'whole'],
  ['bytes=-', 'whole'],
  ['lines=1-2', 'whole'],
  ['nonsense', 'whole'],
])('%s of 10 bytes', (header, want) => {
  expect(byteRange(header, 10)).toEqual(want)
})

describe('a file whose reader', () => {
  // Its own clock: on a busy machine 10 ms pass between any two lines.
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  const size = 700_000 // three pieces
  const open = (readerTimeoutMs: number) => {
    const calls: string[] = []
    const source = {
      name: 'file',
      size,
      async read(offset: number, target: Uint8Array) {
        target.fill(offset & 255)
      },
      async close() {
        calls.push('close')
      },
    }
    return { calls, reader: filePieces(source, 0, size, () => calls.push('cut off'), readerTimeoutMs).getReader() }
  }

  test('takes all of it gets it, however slowly', async () => {
    const { calls, reader } = open(200)
    let bytes = 0
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      bytes += part.value.length
      await vi.advanceTimersByTimeAsync(199)
    }
    expect([bytes, calls]).toEqual([size, ['close']])
  })

  test('takes nothing any more is cut off, and the file closed', async () => {
    const { calls, reader } = open(10)
    await reader.read()
    await vi.advanceTimersByTimeAsync(10)
    expect(calls).toEqual(['cut off', 'close'])
    await expect(reader.read()).rejects.toThrow('nobody reads')
  })

  test('goes leaves nothing open', async () => {
    const { calls, reader } = open(10)
    await reader.read()
    await reader.cancel()
    await vi.advanceTimersByTimeAsync(30)
    expect(calls).toEqual(['close'])
  })
})
