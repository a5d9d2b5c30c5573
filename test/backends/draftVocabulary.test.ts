import { describe, expect, test } from 'vitest'
import { GuessVocabulary, MOST_RARE_TOKENS } from '#moeflux/backends/draftVocabulary.js'

describe('tokens that may be guessed', () => {
  test('are all of a vocabulary that is not much larger than what is common', () => {
    for (const size of [8192, 65_536, 90_000]) {
      const vocabulary = new GuessVocabulary(size)
      expect([vocabulary.common, [...vocabulary.rareOf([0, size - 1])]]).toEqual([size, []])
      const logits = Float32Array.of(1, NaN, 3)
      vocabulary.leaveOut(logits, new Set())
      expect([...logits]).toEqual([1, NaN, 3])
    }
  })

  test('are the common ones and those of the text, of a large one', () => {
    const vocabulary = new GuessVocabulary(248_320)
    expect(vocabulary.common).toBe(65_536)
    const rare = vocabulary.rareOf([248_045, 65_535, -1, 65_536, 3, 100_000, 248_045])
    expect(rare).toEqual(new Set([65_536, 100_000, 248_045]))
  })

  test('are no more than there is room for: what came last', () => {
    const vocabulary = new GuessVocabulary(100_000, 10)
    const long = Array.from({ length: 2 * MOST_RARE_TOKENS }, (_, i) => 10 + i)
    expect(vocabulary.rareOf(long)).toEqual(new Set(long.slice(-MOST_RARE_TOKENS)))
    expect(vocabulary.rareOf(long, 3)).toEqual(new Set(long.slice(-Math.floor(MOST_RARE_TOKENS / 3))))
    expect(vocabulary.rareOf([99_999, ...Array<number>(10_000).fill(1)]), 'far back').toEqual(new Set())
  })

  test('keep their logits, and others have none', () => {
    const logits = Float32Array.of(1, 2, 33, NaN, 5, 66, 7, 88)
    new GuessVocabulary(8, 2).leaveOut(logits, new Set([6, 4]))
    expect([...logits]).toEqual([1, 2, -Infinity, -Infinity, 5, -Infinity, 7, -Infinity])
  })
})
