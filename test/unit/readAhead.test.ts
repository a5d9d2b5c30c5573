// What is read of the guesses about coming layers, and when.
import { describe, expect, it } from 'vitest'
import { type GuessSlots, ReadAhead } from '#moeflux/compute/webgpu/readAhead.js'

const shape = { layers: 8, experts: 16, k: 2, distances: 3, least: 0.6, leastSpare: 0.3 }

/** Slots that note what they are asked for, and read it only when the test says so. */
class NotedSlots implements GuessSlots {
  onRead: (() => void) | null = null
  reading = 0
  readonly asked: string[] = []

  has(layer: number, expert: number): boolean {
    return this.asked.includes(`${layer}/${expert}`)
  }

  prefetch(layer: number, expert: number): void {
    this.asked.push(`${layer}/${expert}`)
    this.reading++
  }

  end(): void {
    this.reading--
    this.onRead?.()
  }
}

/** Reading ahead that has seen how often each rank comes true at each distance. */
function taught(rates: readonly (readonly number[])[]) {
  const slots = new NotedSlots()
  const ahead = new ReadAhead(slots, shape)
  for (const [i, ranks] of rates.entries()) {
    for (const [rank, rate] of ranks.entries()) {
      for (let at = 0; at < 1000; at++) ahead.trust.observe(i + 1, rank, (at * rate) % 1 < rate)
    }
  }
  return { slots, ahead }
}

const guesses = (...choices: number[][]) => choices.map(choice => Uint32Array.from(choice))

describe('ReadAhead', () => {
  it('reads at once what it trusts, and of the rest only what an idle disk has time for, the best first', () => {
    const { slots, ahead } = taught([
      [1, 0.4],
      [0.5, 0.1],
      [0.35, 0.45],
    ])
    slots.reading = 3
    ahead.guess(0, guesses([1, 2], [3, 4], [5, 6]))
    expect(slots.asked).toEqual(['1/1'])
    slots.end()
    expect(slots.asked).toEqual(['1/1', '2/3'])
    slots.end()
    slots.end()
    expect(slots.asked).toEqual(['1/1', '2/3', '3/6', '1/2'])
    for (let i = 0; i < 4; i++) slots.end()
    // What hardly ever comes true is never read.
    expect(slots.asked).toEqual(['1/1', '2/3', '3/6', '1/2', '3/5'])
  })

  it('reads nothing more for a layer whose choice is known', () => {
    const { slots, ahead } = taught([[0.5, 0.5], [0.4]])
    slots.reading = 4
    ahead.guess(2, guesses([1, 2], [3]))
    ahead.judge(3, new Set([1, 2]))
    slots.end()
    slots.end()
    expect(slots.asked).toEqual(['4/3'])
  })

  it('reads nothing more after a step has ended', () => {
    const { slots, ahead } = taught([[0.5, 0.5]])
    slots.reading = 4
    ahead.guess(2, guesses([1, 2]))
    ahead.forget()
    slots.end()
    expect(slots.asked).toEqual([])
  })

  it('learns from guesses that nobody acted on', () => {
    const { slots, ahead } = taught([[0, 0]])
    for (let i = 0; i < 200; i++) {
      ahead.guess(0, guesses([1, 2]))
      ahead.judge(1, new Set([1]))
      ahead.forget()
      slots.asked.length = 0
      slots.reading = 4
    }
    ahead.guess(0, guesses([1, 2]))
    expect(slots.asked).toEqual(['1/1'])
  })
})
