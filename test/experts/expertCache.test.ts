// The cache of experts by policy: what is evicted, what is pinned, and what never happens.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createPolicy, type PolicyName, UseRates } from '#moeflux/experts/evictionPolicy.js'
import { ExpertCache, slotsInBudget } from '#moeflux/experts/expertCache.js'

const policies: readonly PolicyName[] = ['lru', 'lrfu']
const layers = 3
const experts = 8
const expertBytes = 100

type Action =
  | { kind: 'want'; layer: number; expert: number }
  | { kind: 'ahead'; layer: number; expert: number }
  | { kind: 'fill' | 'fail' | 'callOff' | 'unpin' | 'tick'; pick: number }

const key = { layer: fc.nat(layers - 1), expert: fc.nat(experts - 1) }
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('want' as const), ...key }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('ahead' as const), ...key }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constantFrom('fill' as const, 'unpin' as const), pick: fc.nat(99) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constantFrom('fail' as const, 'callOff' as const, 'tick' as const),
      pick: fc.nat(99),
    }),
  },
)

/** Runs actions beside a naive model of what must hold, and returns a log that replays can be compared by. */
function play(policy: PolicyName, budget: number, actions: readonly Action[]): string[] {
  const slots = slotsInBudget(budget, expertBytes)
  const cache = new ExpertCache({ layers, experts, slots, expertBytes, policy })
  const held = new Map<string, { slot: number; pins: number; flying: boolean }>()
  const failed: { slot: number; pins: number }[] = [] // reads that failed, whose slots somebody still has pinned
  const log: string[] = []
  const pick = (which: (entry: { pins: number; flying: boolean }) => boolean, n: number) => {
    const found = [...held].filter(([, entry]) => which(entry))
    return found.length > 0 ? found[n % found.length] : null
  }
  for (const step of actions) {
    if (step.kind === 'want' || step.kind === 'ahead') {
      const name = `${step.layer}:${step.expert}`
      const known = held.get(name)
      expect(cache.slotOf(step.layer, step.expert)).toBe(known?.slot ?? -1)
      if (known) {
        if (step.kind === 'want') {
          expect(cache.want(step.layer, step.expert)).toBe(known.slot)
          known.pins++
        }
      } else {
        const slot =
          step.kind === 'want' ? cache.claim(step.layer, step.expert) : cache.claimAhead(step.layer, step.expert)
        log.push(`${name}→${slot}`)
        const victim = [...held].find(([, entry]) => entry.slot === slot)
        if (slot < 0) {
          const stuck = [...held.values()].filter(entry => entry.pins > 0 || entry.flying)
          expect(stuck.length + failed.length).toBe(slots)
        } else {
          if (victim) {
            expect(victim[1]).toMatchObject({ pins: 0, flying: false })
            held.delete(victim[0])
          }
          held.set(name, { slot, pins: step.kind === 'want' ? 1 : 0, flying: true })
        }
      }
    } else if (step.kind === 'tick') {
      cache.tick()
    } else if (step.kind === 'unpin') {
      const entry = failed[step.pick % (failed.length + 1)] ?? pick(({ pins }) => pins > 0, step.pick)?.[1]
      if (entry) {
        cache.unpin(entry.slot)
        entry.pins--
        if (entry.pins === 0 && failed.includes(entry)) failed.splice(failed.indexOf(entry), 1)
      }
    } else {
      const found = pick(entry => entry.flying, step.pick)
      if (!found) continue
      if (step.kind === 'fill') {
        cache.filled(found[1].slot)
        found[1].flying = false
      } else if (step.kind === 'fail') {
        cache.failed(found[1].slot)
        held.delete(found[0])
        if (found[1].pins > 0) failed.push(found[1])
      } else if (found[1].pins === 0) {
        cache.calledOff(found[1].slot)
        held.delete(found[0])
      } else expect(() => cache.calledOff(found[1].slot)).toThrow('somebody waits for it')
    }
    // The slot map is a bijection, and stays under its bytes.
    expect(cache.bytesUsed).toBe((held.size + failed.length) * expertBytes)
    expect(cache.bytesUsed).toBeLessThanOrEqual(budget)
    const inUse = [...held.values(), ...failed].map(entry => entry.slot)
    expect(new Set(inUse).size).toBe(inUse.length)
    for (const [name, entry] of held) {
      expect(`${cache.layerOf(entry.slot)}:${cache.expertOf(entry.slot)}`).toBe(name)
      expect(cache.isReady(entry.slot)).toBe(!entry.flying)
    }
  }
  return log
}

describe.each(policies)('expert cache with %s', policy => {
  test('never gives away a pinned or in-flight slot, keeps a bijection, and stays under its bytes', () => {
    fc.assert(
      fc.property(fc.integer({ min: 100, max: 1250 }), fc.array(action, { maxLength: 120 }), (budget, actions) => {
        play(policy, budget, actions)
      }),
      { numRuns: 200 },
    )
  })

  test('replays to the same evictions', () => {
    fc.assert(
      fc.property(fc.array(action, { minLength: 20, maxLength: 120 }), actions => {
        expect(play(policy, 600, actions)).toEqual(play(policy, 600, actions))
      }),
      { numRuns: 50 },
    )
  })
})

describe('eviction', () => {
  const use = (cache: ExpertCache, layer: number, expert: number) => {
    let slot = cache.want(layer, expert)
    if (slot < 0) {
      slot = cache.claim(layer, expert)
      cache.filled(slot)
    }
    cache.unpin(slot)
  }
  const cacheOf = (policy: PolicyName, slots: number, layerCount = 1) =>
    new ExpertCache({ layers: layerCount, experts: 64, slots, expertBytes: 1, policy })

  test('lru drops the least recently used', () => {
    const cache = cacheOf('lru', 3)
    for (const expert of [1, 2, 3, 1, 4]) use(cache, 0, expert)
    expect(cache.slotOf(0, 2)).toBe(-1)
    expect(cache.slotOf(0, 1)).toBeGreaterThanOrEqual(0)
  })

  test('lrfu keeps an expert that is used often through a burst of others, lru does not', () => {
    const kept = policies.map(policy => {
      const cache = cacheOf(policy, 4)
      for (let step = 0; step < 20; step++) {
        cache.tick()
        use(cache, 0, 0)
        use(cache, 0, 1 + (step % 2))
      }
      for (let expert = 10; expert < 16; expert++) {
        cache.tick()
        use(cache, 0, expert)
      }
      return cache.slotOf(0, 0) >= 0
    })
    expect(kept).toEqual([false, true])
  })

  test('lrfu forgets an expert that was hot long ago', () => {
    const cache = cacheOf('lrfu', 4)
    for (let step = 0; step < 50; step++) {
      cache.tick()
      use(cache, 0, 0)
    }
    for (let step = 0; step < 2000; step++) {
      cache.tick()
      use(cache, 0, 1 + (step % 6))
    }
    expect(cache.slotOf(0, 0)).toBe(-1)
  })

  test('lrfu prefers the layer whose turn is farthest away', () => {
    const cache = cacheOf('lrfu', 4, 4)
    cache.tick()
    for (let layer = 0; layer < 4; layer++) use(cache, layer, 0)
    cache.tick()
    use(cache, 0, 0)
    use(cache, 1, 1) // layers 2 and 3 come next, layer 1's turn is a whole token away
    expect(cache.slotOf(1, 0)).toBe(-1)
    expect(cache.slotOf(2, 0)).toBeGreaterThanOrEqual(0)
  })

  test('counts prefetches as used once or wasted', () => {
    const cache = cacheOf('lru', 2)
    cache.filled(cache.claimAhead(0, 1))
    cache.filled(cache.claimAhead(0, 2))
    use(cache, 0, 1)
    use(cache, 0, 1)
    use(cache, 0, 3) // drops 2, which nobody wanted
    expect(cache.counters).toMatchObject({
      hits: 2,
      misses: 1,
      prefetchReads: 2,
      prefetchHits: 1,
      prefetchWastedBytes: 1,
    })
  })

  test('gives the next layer the slot that it would get in its turn, when that is free, and none of a closed pool', () => {
    const cache = cacheOf('lrfu', 3, 4)
    cache.tick()
    use(cache, 3, 0)
    use(cache, 2, 0)
    const own = cache.claim(0, 5) // of the present layer
    cache.filled(own)
    expect(cache.claimNext(1, 7)).toBe(-1)
    expect([cache.slotOf(3, 0), cache.slotOf(2, 0)]).not.toContain(-1)
    cache.unpin(own)
    cache.closePool(0)
    expect(cache.claimNext(1, 7)).toBe(-1)
    cache.openPool(0, 3)
    expect(cache.claimNext(1, 7)).toBe(own)
    expect(cache.counters).toMatchObject({ prefetchReads: 1 })
  })

  test('has no victim where nothing may go', () => {
    for (const policy of policies) {
      const order = createPolicy(policy, { layers: 1, experts: 4, slots: 2 }, new UseRates(4))
      order.inserted(0, 0, 1)
      order.inserted(1, 0, 2)
      expect(order.victim(0, () => false)).toBe(-1)
    }
  })
})
