// Parts of the tab's side that need no tab: checksums, and errors that travel between threads.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { packError, unpackError } from '#moeflux/apps/browser/protocol.js'
import { xxHash32 } from '#moeflux/files/pieces/xxHash.js'
import { ExpertReadError, FetchError, MoefluxError, OptionError, SnapshotError } from '#moeflux/index.js'

describe('xxHash32', () => {
  test('has the values of the reference implementation', () => {
    const text = (value: string) => new TextEncoder().encode(value)
    expect(xxHash32(text(''))).toBe(0x02cc5d05)
    expect(xxHash32(text(''), 1)).toBe(0x0b2cb792)
    expect(xxHash32(text('a'))).toBe(0x550d7456)
    expect(xxHash32(text('abc'))).toBe(0x32d153ff)
    expect(xxHash32(text('Nobody inspects the spammish repetition'))).toBe(0xe2293b2f)
  })

  test('is the same wherever the bytes lie, and another after any change of a bit', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 100 }), fc.nat(3), fc.nat(), (bytes, shift, where) => {
        const moved = new Uint8Array(shift + bytes.length)
        moved.set(bytes, shift)
        expect(xxHash32(moved.subarray(shift), 7)).toBe(xxHash32(bytes, 7))
        const flipped = bytes.slice()
        flipped[where % bytes.length] ^= 1 << (where % 8)
        expect(xxHash32(flipped)).not.toBe(xxHash32(bytes))
      }),
    )
  })
})

describe('errors between threads', () => {
  const travel = (error: unknown) => unpackError(structuredClone(packError(error)))

  test('are of the same class, with code, message and fields', () => {
    const errors = [
      new ExpertReadError(1, 2, 'file', 3, 'gone'),
      new FetchError('NO_RANGES', 'http://x/', 'no', { status: 200 }),
      new OptionError('threads', 0, 'more'),
      new SnapshotError('BadMagic', 'no', { got: 1 }),
      new MoefluxError('EVALUATION', 'hm'),
    ]
    for (const error of errors) {
      const got = travel(error) as MoefluxError
      expect(got.constructor).toBe(error.constructor)
      expect({ ...got }).toEqual({ ...error })
      expect([got.name, got.message, got.stack]).toEqual([error.name, error.message, error.stack])
    }
  })

  test('that are not ours keep name and message; causes and functions stay behind', () => {
    const abort = travel(new DOMException('stopped', 'AbortError'))
    expect(abort).toBeInstanceOf(DOMException)
    expect([abort.name, abort.message]).toEqual(['AbortError', 'stopped'])
    const type = travel(Object.assign(new TypeError('bad'), { call: () => {}, cause: new Map() }))
    expect([type.name, type.message]).toEqual(['TypeError', 'bad'])
    expect(travel('just text').message).toBe('just text')
  })
})
