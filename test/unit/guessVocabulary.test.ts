import { describe, expect, test } from 'vitest'
import { GuessVocabulary, MOST_RARE_TOKENS } from '#moeflux/compute/guessVocabulary.js'

describe('tokens that may be guessed', () => {
  test('are all of a vocabulary that is not much larger than what is common', () => {
    for (const size of [8192, 65_536, 90_000]) {
      const vocabulary = new GuessVocabulary(size)
      vocabulary.see([0, size - 1])
      expect([vocabulary.common, vocabulary.rare]).toEqual([size, []])
      const logits = Float32Array.of(1, NaN, 3)
      vocabulary.leaveOut(logits)
      expect([...logits]).toEqual([1, NaN, 3])
    }
  })

  test('are the common ones and those that were seen, ascending, of a large one', () => {
    const vocabulary = new GuessVocabulary(248_320)
    expect(vocabulary.common).toBe(65_536)
    vocabulary.see([248_045, 65_535, 65_536, 3])
    expect(vocabulary.rare).toEqual([65_536, 248_045])
    vocabulary.see([100_000, 248_045])
    expect(vocabulary.rare).toEqual([65_536, 100_000, 248_045])
  })

  test('are no more than there is room for: what was seen longest ago goes', () => {
    const vocabulary = new GuessVocabulary(100_000, 10)
    vocabulary.see(Array.from({ length: MOST_RARE_TOKENS }, (_, i) => 10 + i))
    vocabulary.see([10]) // again
    vocabulary.see([90_000])
    expect(vocabulary.rare).toHaveLength(MOST_RARE_TOKENS)
    expect(vocabulary.rare[0]).toBe(10)
    expect(vocabulary.rare[1]).toBe(12)
    expect(vocabulary.rare.at(-1)).toBe(90_000)
  })

  test('keep their logits, and others have none', () => {
    const vocabulary = new GuessVocabulary(8, 2)
    vocabulary.see([6, 4])
    const logits = Float32Array.of(1, 2, 33, NaN, 5, 66, 7, 88)
    vocabulary.leaveOut(logits)
    expect([...logits]).toEqual([1, 2, -Infinity, -Infinity, 5, -Infinity, 7, -Infinity])
  })
})
