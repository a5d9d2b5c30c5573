// Which guesses about coming layers are read.
import { describe, expect, test } from 'vitest'
import { GuessTrust } from '#moeflux/experts/prefetch.js'

describe('GuessTrust', () => {
  test('stops trusting a kind that keeps failing, and only that', () => {
    const trust = new GuessTrust(2, 8, 0.6)
    for (let i = 0; i < 200; i++) {
      trust.observe(0, 0, true)
      trust.observe(0, 7, i % 3 === 0)
      trust.observe(1, 0, false)
    }
    expect(trust.trusts(0, 0)).toBe(true)
    expect(trust.trusts(0, 7)).toBe(false)
    expect(trust.rate(0, 7)).toBeCloseTo(1 / 3, 1)
    expect(trust.trusts(1, 0)).toBe(false)
    expect(trust.trusts(1, 7)).toBe(true) // nothing was seen of it
  })

  test('trusts a kind again that has become good', () => {
    const trust = new GuessTrust(1, 1, 0.6)
    for (let i = 0; i < 300; i++) trust.observe(0, 0, false)
    expect(trust.trusts(0, 0)).toBe(false)
    for (let i = 0; i < 100; i++) trust.observe(0, 0, true)
    expect(trust.trusts(0, 0)).toBe(true)
  })
})
