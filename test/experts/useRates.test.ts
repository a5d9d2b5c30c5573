// How often experts are used, counted with forgetting, and the policy made of it.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createPolicy, defaultTuning, UseRates } from '#moeflux/experts/evictionPolicy.js'

/** Straight from the definition, over the whole past. */
function rateOf(steps: readonly (readonly number[])[], key: number, experts: number) {
  const faded = (halfLife: number, of: (step: readonly number[]) => number) => {
    const weights = steps.map((_, i) => 2 ** ((i + 1 - steps.length) / halfLife))
    const total = 1 / (1 - 2 ** (-1 / halfLife)) // of an endless past
    return steps.reduce((sum, step, i) => sum + weights[i] * of(step), 0) / total
  }
  const uses = (step: readonly number[]) => step.filter(used => used === key).length
  const { shortHalfLife, longHalfLife, shortShare, meanShare } = defaultTuning
  // The mean is that of before the present step.
  const mean = faded(longHalfLife, step => (step === steps.at(-1) ? 0 : step.length)) / experts
  const steady = faded(longHalfLife, uses)
  return { steady, rate: meanShare * mean + shortShare * faded(shortHalfLife, uses) + (1 - shortShare) * steady }
}

describe('rates of use', () => {
  test('are the faded shares of steps, quick and slow, and a part of the mean', () => {
    const experts = 5
    const step = fc.uniqueArray(fc.nat(experts - 1), { maxLength: 3 })
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 40 }), steps => {
        const rates = new UseRates(experts)
        for (const [i, used] of steps.entries()) {
          if (i > 0) rates.tick()
          for (const key of used) rates.used(key)
        }
        for (let key = 0; key < experts; key++) {
          const { steady, rate } = rateOf(steps, key, experts)
          expect(rates.steadyRate(key)).toBeCloseTo(steady, 10)
          expect(rates.rate(key)).toBeCloseTo(rate, 10)
        }
      }),
    )
  })

  test('stay what they are over as many steps as one likes', () => {
    const rates = new UseRates(3)
    for (let step = 0; step < 70_000; step++) {
      if (step > 0) rates.tick()
      rates.used(0)
      if (step % 4 === 0) rates.used(1)
    }
    expect(rates.steadyRate(0)).toBeCloseTo(1, 9)
    expect(Math.abs(rates.steadyRate(1) - 0.25)).toBeLessThan(0.01)
    expect(rates.steadyRate(2)).toBe(0)
    expect(rates.rate(2)).toBeCloseTo((2 * 1.25) / 3, 1)
    for (let step = 0; step < 70_000; step++) rates.tick()
    expect(rates.steadyRate(0)).toBeLessThan(1e-100)
  })
})

describe('lrfu', () => {
  // What the heaps must find, by looking at every slot.
  test('evicts the slot with the longest wait, whatever happened before', () => {
    const shape = { layers: 3, experts: 8, slots: 10 }
    const action = fc.record({
      kind: fc.constantFrom('use', 'use', 'use', 'use', 'ahead', 'remove', 'offer', 'tick', 'victim'),
      pick: fc.nat(shape.layers * shape.experts - 1),
    })
    fc.assert(
      fc.property(fc.array(action, { minLength: 30, maxLength: 150 }), actions => {
        const rates = new UseRates(shape.layers * shape.experts)
        const policy = createPolicy('lrfu', shape, rates)
        const slots = new Map<number, { key: number; unusedSince: number; offered: boolean }>()
        const scoreOf = ({ key, unusedSince, offered }: { key: number; unusedSince: number; offered: boolean }) => {
          if (offered) return -1
          return rates.rate(key) + (unusedSince < 0 ? 0 : rates.perUse * 2 ** ((unusedSince - rates.step) / 4))
        }
        const longestWait = (layer: number, mayEvict: (slot: number) => boolean) => {
          let best = { slot: -1, wait: -1 }
          for (let ahead = shape.layers; ahead >= 1; ahead--) {
            const there = [...slots].filter(
              ([slot, { key }]) => Math.floor(key / shape.experts) === (layer + ahead) % shape.layers && mayEvict(slot),
            )
            there.sort(([, a], [, b]) => scoreOf(a) - scoreOf(b) || a.key - b.key)
            if (there.length === 0) continue
            const [slot, entry] = there[0]
            const wait = entry.offered ? Infinity : 1 / Math.min(1, scoreOf(entry)) - 1 + ahead / shape.layers
            if (wait > best.wait) best = { slot, wait }
          }
          return best.slot
        }
        for (const { kind, pick } of actions) {
          const found = [...slots].find(([, { key }]) => key === pick)
          if (kind === 'tick') {
            rates.tick()
          } else if (kind === 'victim') {
            const mayEvict = (slot: number) => slot % 3 !== pick % 3
            const layer = pick % shape.layers
            expect(policy.victim(layer, mayEvict)).toBe(longestWait(layer, mayEvict))
          } else if (kind === 'offer' && found) {
            found[1].offered = !found[1].offered
            policy.offer(found[0], found[1].offered)
          } else if (kind === 'remove' && found) {
            policy.removed(found[0])
            slots.delete(found[0])
          } else if (kind === 'use' && found) {
            policy.used(found[0])
            found[1].unusedSince = -1
          } else if ((kind === 'use' || kind === 'ahead') && !found && slots.size < shape.slots) {
            const slot = Array.from({ length: shape.slots }, (_, i) => i).find(i => !slots.has(i)) as number
            policy.inserted(slot, Math.floor(pick / shape.experts), pick % shape.experts)
            slots.set(slot, { key: pick, unusedSince: rates.step, offered: false })
          }
        }
      }),
      { numRuns: 200 },
    )
  })
})
