// Which experts of a prompt's layer go to the GPU, and which stay with the processors.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { expertsToBring, type PromptTimes } from '#moeflux/experts/tierSpeed.js'

const times: PromptTimes = { uploadSeconds: 200, expertSeconds: 35, tokenSeconds: 6 }

test('where nothing was measured, experts of so many tokens go up', () => {
  const tokensOf = new Map([
    [3, 7],
    [5, 8],
    [9, 20],
  ])
  expect([...expertsToBring(tokensOf, { uploadFromTokens: 8 })]).toEqual([5, 9])
})

test('one expert goes where it is done sooner', () => {
  const brings = (tokens: number) => expertsToBring(new Map([[4, tokens]]), { times }).size
  expect(brings(28)).toBe(0) // 197
  expect(brings(29)).toBe(1) // 203
})

test('many experts are shared out so that both sides end together, those of most tokens going up', () => {
  const experts = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 200 })
  fc.assert(
    fc.property(experts, tokens => {
      const tokensOf = new Map(tokens.map((count, expert) => [expert, count]))
      const brought = expertsToBring(tokensOf, { times })
      const secondsOf = (count: number) => 35 + 6 * (count - 1)
      const left = tokens.filter((_, expert) => !brought.has(expert))
      const processors = left.reduce((sum, count) => sum + secondsOf(count), 0)
      const end = Math.max(processors, brought.size * 200)
      const alone = tokens.reduce((sum, count) => sum + secondsOf(count), 0)
      expect(end).toBeLessThanOrEqual(Math.min(alone, tokens.length * 200))
      const fewest = Math.min(...[...brought].map(expert => tokens[expert]))
      for (const count of left) expect(count).toBeLessThanOrEqual(fewest)
      // One more, the largest that is left, would end no sooner.
      const next = Math.max(...left)
      if (left.length > 0) {
        expect(Math.max(processors - secondsOf(next), (brought.size + 1) * 200)).toBeGreaterThanOrEqual(end)
      }
    }),
  )
})
