// The checkpoint rules against a second telling of them, over random operations.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { CheckpointRules } from '#moeflux/engine/state.js'

/** Position and time of last use; every rule spelled out on its own. */
class Simple {
  entries: { position: number; used: number }[] = []
  time = 0

  store(position: number, max: number) {
    this.entries = this.entries.filter(entry => entry.position !== position)
    if (max > 0) this.entries.push({ position, used: ++this.time })
    while (this.entries.length > max) {
      const others = this.entries.filter(entry => entry.position !== position)
      const unprotected = others.filter(entry => entry.position !== 0)
      const from = unprotected.length > 0 ? unprotected : others
      const oldest = from.reduce((a, b) => (a.used < b.used ? a : b))
      this.entries = this.entries.filter(entry => entry !== oldest)
    }
  }

  restore(position: number) {
    this.entries = this.entries.filter(entry => entry.position <= position)
    for (const entry of this.entries) if (entry.position === position) entry.used = ++this.time
  }

  get positions() {
    return this.entries.map(entry => entry.position).sort((a, b) => a - b)
  }
}

describe('checkpoint rules', () => {
  test('agree with the simple model', () => {
    const position = fc.nat(6)
    const operation = fc.oneof(
      { weight: 4, arbitrary: fc.record({ kind: fc.constant('store' as const), position }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant('restore' as const), position }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('max' as const), position: fc.nat(4) }) },
    )
    fc.assert(
      fc.property(fc.nat(4), fc.array(operation, { maxLength: 40 }), (max, operations) => {
        const rules = new CheckpointRules(max)
        const simple = new Simple()
        for (const { kind, position } of operations) {
          const before = rules.positions
          if (kind === 'max') rules.max = position
          else if (kind === 'store') {
            const gone = rules.store(position)
            simple.store(position, rules.max)
            const kept = [...new Set([...before, position])].filter(p => !gone.includes(p)).sort((a, b) => a - b)
            expect(kept, 'what it says is gone').toEqual(rules.positions)
            expect(rules.positions.length).toBeLessThanOrEqual(rules.max)
          } else if (rules.has(position)) {
            expect(rules.restore(position).sort()).toEqual(before.filter(p => p > position))
            simple.restore(position)
          }
          expect(rules.positions).toEqual(simple.positions)
          expect(rules.nearest(3)).toBe(rules.positions.filter(p => p <= 3).at(-1) ?? null)
        }
      }),
      { numRuns: 300 },
    )
  })

  test('position 0 goes only when nothing else is left', () => {
    const rules = new CheckpointRules(2)
    rules.store(0)
    rules.store(10)
    expect(rules.store(20)).toEqual([10])
    expect(rules.store(30)).toEqual([20])
    rules.max = 1
    expect(rules.positions).toEqual([0, 30])
    expect(rules.store(40)).toEqual([30, 0])
  })
})
