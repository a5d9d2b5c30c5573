// Runs before each test file. vitest compares arrays one number at a time, with a call or two for each: half a minute
// for a model's weights. Where all bytes are the same there is nothing to look for; else vitest finds and shows what differs.
import { expect } from 'vitest'

const bytes = (of: ArrayBufferView) => new Uint8Array(of.buffer, of.byteOffset, of.byteLength)

function areSame(one: unknown, other: unknown): boolean {
  if (Array.isArray(one) && Array.isArray(other)) {
    const isSame = (value: unknown, i: number) => typeof value === 'number' && Object.is(value, other[i])
    return one.length === other.length && Array.from(one).every(isSame)
  }
  if (!ArrayBuffer.isView(one) || !ArrayBuffer.isView(other)) return false
  return one.constructor === other.constructor && Buffer.compare(bytes(one), bytes(other)) === 0
}

expect.addEqualityTesters([(one: unknown, other: unknown) => areSame(one, other) || undefined])
