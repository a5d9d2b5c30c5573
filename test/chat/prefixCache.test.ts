// The longest known prefix of a prompt, and which states are worth their memory.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Landmark, PrefixCache } from '#moeflux/chat/prefixCache.js'
import { commonPrefix, matchingPrefixes, prefixKey } from '#moeflux/chat/prefixMatch.js'

const tokens = fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 12 })

describe('matching', () => {
  test('finds exactly the prefixes of a prompt, longest first', () => {
    fc.assert(
      fc.property(tokens, fc.array(tokens, { maxLength: 20 }), (prompt, kept) => {
        const known = kept.map(list => ({ length: list.length, key: prefixKey(list), list }))
        const found = matchingPrefixes(prompt, known)
        const expected = known.filter(({ list }) => list.every((token, i) => prompt[i] === token))
        expect(new Set(found)).toEqual(new Set(expected))
        expect(found.map(({ length }) => length)).toEqual(found.map(({ length }) => length).toSorted((a, b) => b - a))
      }),
    )
  })

  test('counts the tokens in common', () => {
    fc.assert(
      fc.property(tokens, tokens, tokens, (shared, a, b) => {
        const common = commonPrefix([...shared, ...a], [...shared, ...b])
        expect(common).toBeGreaterThanOrEqual(shared.length)
        expect([...shared, ...a].slice(0, common)).toEqual([...shared, ...b].slice(0, common))
      }),
    )
  })
})

describe('the cache', () => {
  const state = (list: readonly number[], bytes = 10) => ({ tokens: list, bytes, release: () => {} })
  const landmarks: Landmark[] = ['system', 'breakpoint', 'userTurn', 'promptEnd', 'prompt', 'answer']

  test('never holds more than its bytes, never drops what is pinned, and always finds what it holds', () => {
    const operation = fc.record({
      list: tokens.filter(list => list.length > 0),
      bytes: fc.integer({ min: 1, max: 60 }),
      landmark: fc.constantFrom(...landmarks),
      conversation: fc.integer({ min: 1, max: 5 }),
      pin: fc.boolean(),
    })
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 40 }), operations => {
        const cache = new PrefixCache({ bytes: 100, conversations: 3 })
        const held = new Set<object>()
        for (const { list, bytes, landmark, conversation, pin } of operations) {
          if (cache.touch(list, list.length, landmark, conversation)) continue
          const added = state(list, bytes)
          held.add(added)
          for (const { state: gone, pins } of cache.add(added, landmark, conversation)) {
            expect(pins).toBe(0)
            expect(held.delete(gone)).toBe(true)
          }
          const entry = cache.find(list)
          if (held.has(added)) expect(entry?.state).toBe(added)
          if (entry && pin && cache.bytes < 60) entry.pins++
        }
        expect(cache.bytes).toBeLessThanOrEqual(100 + 60)
        expect(new Set(cache.drain().map(entry => entry.state))).toEqual(held)
      }),
    )
  })

  test('lets go of repetitions first, of the system prompt last', () => {
    const cache = new PrefixCache({ bytes: 30, conversations: 9 })
    cache.add(state([1]), 'system', 1)
    cache.add(state([1, 2]), 'promptEnd', 1)
    cache.add(state([1, 2, 3]), 'prompt', 1)
    expect(cache.add(state([1, 5]), 'promptEnd', 2).map(entry => entry.landmark)).toEqual(['prompt'])
    cache.touch([1], 1, 'system', 3)
    expect(cache.add(state([1, 6]), 'promptEnd', 3).map(entry => entry.state.tokens)).toEqual([[1, 2]])
    expect(cache.find([1, 9])?.landmark).toBe('system')
  })

  test('does not let system prompts of the past crowd out conversations', () => {
    const cache = new PrefixCache({ bytes: 40, conversations: 9 })
    for (const conversation of [1, 2, 3, 4]) cache.add(state([conversation]), 'system', conversation)
    const gone = [5, 6].flatMap(token => cache.add(state([4, token]), 'promptEnd', 4))
    expect(gone.map(entry => entry.conversation)).toEqual([1, 2])
  })

  test('forgets whole conversations, the one used longest ago first', () => {
    const cache = new PrefixCache({ bytes: 1e9, conversations: 2 })
    cache.add(state([1]), 'promptEnd', 1)
    cache.add(state([2]), 'promptEnd', 2)
    cache.find([1, 1])
    const gone = cache.add(state([3]), 'promptEnd', 3)
    expect(gone.map(entry => entry.conversation)).toEqual([2])
  })

  test('keeps one state per prefix', () => {
    const cache = new PrefixCache({ bytes: 100, conversations: 9 })
    const first = state([1, 2])
    const second = state([1, 2])
    expect(cache.add(first, 'prompt', 1)).toEqual([])
    expect(cache.add(second, 'promptEnd', 2).map(entry => entry.state)).toEqual([second])
    expect(cache.find([1, 2, 3])).toMatchObject({ state: first, landmark: 'promptEnd', conversation: 2 })
  })

  test('does not give up everything for one state that is too large', () => {
    const cache = new PrefixCache({ bytes: 30, conversations: 2 })
    cache.add(state([1]), 'promptEnd', 1)
    const large = state([2], 31)
    expect(cache.add(large, 'promptEnd', 1).map(entry => entry.state)).toEqual([large])
    expect(cache.size).toBe(1)
  })

  test('names what is worth storing: the newest of each conversation, and system prompts', () => {
    const cache = new PrefixCache({ bytes: 1e9, conversations: 9 })
    cache.add(state([1]), 'system', 1)
    cache.add(state([1, 2]), 'promptEnd', 1)
    cache.add(state([1, 2, 3]), 'promptEnd', 1)
    cache.add(state([1, 2, 3, 4]), 'answer', 1)
    cache.add(state([1, 7]), 'promptEnd', 2)
    expect(cache.worthStoring().map(entry => entry.state.tokens)).toEqual([[1], [1, 2, 3], [1, 7]])
  })
})
