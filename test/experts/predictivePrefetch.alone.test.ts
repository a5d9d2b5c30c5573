// What is read of the guesses about coming layers, and when.
import { describe, expect, test } from 'vitest'
import { type GuessedSlots, ReadAhead } from '#moeflux/experts/prefetch.js'

const shape = { layers: 8, experts: 16, k: 2, sources: 3, least: 0.6, leastSpare: 0.3 }

/** Slots that note what they are asked for, and read it only when the test says so. */
class NotedSlots implements GuessedSlots {
  reading = 0
  readonly asked: string[] = []

  has(layer: number, expert: number): boolean {
    return this.asked.includes(`${layer}/${expert}`)
  }

  prefetch(layer: number, expert: number): void {
    this.asked.push(`${layer}/${expert}`)
    this.reading++
  }
}

/** Reading ahead that has seen how often each rank of each source comes true; source i speaks of the layer i + 1 further on. */
function taught(rates: readonly (readonly number[])[]) {
  const slots = new NotedSlots()
  const ahead = new ReadAhead(slots, shape)
  for (const [i, ranks] of rates.entries()) {
    for (const [rank, rate] of ranks.entries()) {
      for (let at = 0; at < 1000; at++) ahead.trust.observe(i, rank, (at * rate) % 1 < rate)
    }
  }
  const guess = (layer: number, ...choices: number[][]) => {
    for (const [i, choice] of choices.entries()) ahead.guess(layer + 1 + i, i, choice)
    ahead.readSpare()
  }
  const end = () => {
    slots.reading--
    ahead.readSpare()
  }
  return { slots, ahead, guess, end }
}

describe('ReadAhead', () => {
  test('reads at once what it trusts, and of the rest only what an idle disk has time for, the best first', () => {
    const { slots, guess, end } = taught([
      [1, 0.4],
      [0.5, 0.1],
      [0.35, 0.45],
    ])
    slots.reading = 3
    guess(0, [1, 2], [3, 4], [5, 6])
    expect(slots.asked).toEqual(['1/1'])
    end()
    expect(slots.asked).toEqual(['1/1', '2/3'])
    end()
    end()
    expect(slots.asked).toEqual(['1/1', '2/3', '3/6', '1/2'])
    for (let i = 0; i < 4; i++) end()
    // What hardly ever comes true is never read.
    expect(slots.asked).toEqual(['1/1', '2/3', '3/6', '1/2', '3/5'])
  })

  test('reads nothing more for a layer whose choice is known', () => {
    const { slots, ahead, guess, end } = taught([[0.5, 0.5], [0.4]])
    slots.reading = 4
    guess(2, [1, 2], [3])
    ahead.judge(3, new Set([1, 2]))
    end()
    end()
    expect(slots.asked).toEqual(['4/3'])
  })

  test('reads nothing more after a step has ended', () => {
    const { slots, ahead, guess, end } = taught([[0.5, 0.5]])
    slots.reading = 4
    guess(2, [1, 2])
    ahead.forget()
    end()
    expect(slots.asked).toEqual([])
  })

  test('learns from guesses that nobody acted on', () => {
    const { slots, ahead, guess } = taught([[0, 0]])
    for (let i = 0; i < 200; i++) {
      guess(0, [1, 2])
      ahead.judge(1, new Set([1]))
      ahead.forget()
      slots.asked.length = 0
      slots.reading = 4
    }
    guess(0, [1, 2])
    expect(slots.asked).toEqual(['1/1'])
  })
})
