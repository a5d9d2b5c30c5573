// Which number of guesses the governor takes, on machines that are made up: what pays is found, and what does not costs next to nothing.
import { describe, expect, test } from 'vitest'
import { DraftGovernor } from '#moeflux/engine/draftGovernor.js'
import { seededRandom } from '../support/random.js'

/** A machine: rounds with 0 to 3 guesses take so long, guesses are right so often; what varies. */
interface Machine {
  readonly times: readonly number[]
  readonly rate: number
  readonly spread?: number // of times, a share of them
  readonly hangs?: number // how often a round is put aside for twenty times as long
  readonly head?: number // keeping it up to date, in a round without guesses
}

/** What it takes by itself is counted, without what a busy machine adds. */
function play(governor: DraftGovernor, machine: Machine, tokens: number, random = seededRandom(5)) {
  const { times, rate, spread = 0.1, hangs = 0, head = 0 } = machine
  const used = [0, 0, 0, 0]
  let seconds = 0
  let made = 0
  while (made < tokens) {
    const keepsHead = governor.needsHead
    const guesses = governor.next(3)
    let right = 0
    while (right < guesses && random() < rate) right++
    used[guesses]++
    const takes = times[guesses] + (guesses === 0 && keepsHead ? head : 0)
    seconds += takes
    made += right + 1
    const took = takes * (1 - spread / 2 + spread * random()) * (random() < hangs ? 20 : 1)
    governor.roundDone({ guesses, right, seconds: took })
  }
  return { used, seconds, made, perToken: seconds / made }
}

test('takes what pays, and says so', () => {
  const cheap = new DraftGovernor('auto')
  const paying = { times: [1, 1.1, 1.2, 1.3], rate: 0.9 }
  play(cheap, paying, 250)
  expect(cheap.stats.now, 'after 250 tokens').toBe(3)
  play(cheap, paying, 350)
  expect(play(cheap, paying, 3000).perToken).toBeLessThan(0.42) // 1.3 / 3.44 with three
  expect(cheap.stats).toMatchObject({
    now: 3,
    reason: expect.stringMatching(/^1[5-7]\d% faster with 3: 1\.\d+e\+3 ms for 3\.\d+ tokens/),
  })
  const wrong = new DraftGovernor('auto')
  play(wrong, { times: [1, 1.2, 1.4, 1.6], rate: 0.05 }, 600)
  expect(wrong.stats.now).toBe(0)
})

test.each([
  ['that cost more than they give', { times: [0.001, 0.00215, 0.0032, 0.0043], rate: 0.9 }, 'slower with'],
  ['that are hardly ever right', { times: [0.001, 0.0013, 0.0016, 0.0019], rate: 0.1 }, 'slower with'],
])('gives up guesses %s, for less than a percent, and says why', (_, machine, reason) => {
  const governor = new DraftGovernor('auto')
  expect(play(governor, machine, 200).perToken).toBeLessThan(0.00103)
  expect(play(governor, machine, 4000).perToken).toBeLessThan(0.00101)
  expect(governor.stats).toMatchObject({ now: 0, reason: expect.stringContaining(reason) })
})

test('loses next to nothing where times vary by half and guesses pay as much as they cost', () => {
  for (const seed of [1, 2, 3, 4, 5, 6]) {
    const machine = { times: [1, 1.95, 2.9, 3.9], rate: 0.9, spread: 1 }
    expect(play(new DraftGovernor('auto'), machine, 4000, seededRandom(seed)).perToken).toBeLessThan(1.03)
  }
})

test('what it says is what it measured: rounds in turns, times and tokens of both ways', () => {
  const governor = new DraftGovernor('auto')
  expect(governor.stats.reason).toBe('not measured yet')
  play(governor, { times: [0.002, 0.005, 1, 1], rate: 1, spread: 0 }, 200)
  const [, percent, count, tokens] =
    /^(\d+)% slower with (\d): 5\.00 ms for ([\d.]+) tokens, 2\.00 ms for one without$/.exec(governor.stats.reason) ??
    []
  expect(count).toBe('1')
  expect(Number(percent)).toBe(Math.round(100 * (1 - (2 * Number(tokens)) / 5)))
})

test('does not take a slow time of day for what guesses cost', () => {
  const governor = new DraftGovernor('auto')
  const random = seededRandom(9)
  let clock = 0
  for (let i = 0; i < 3000; i++) {
    const guesses = governor.next(3)
    const factor = 1 + 0.8 * Math.sin(i / 90) // the machine is up to nine times as fast as at its slowest
    const right = guesses > 0 && random() < 0.9 ? 1 : 0
    governor.roundDone({ guesses, right, seconds: [1, 1.4, 3, 4][guesses] * factor })
    if (i > 1000 && guesses === 1) clock++
  }
  expect(clock).toBeGreaterThan(1500)
})

test('notices when times change, and when guesses come true less often', () => {
  const governor = new DraftGovernor('auto')
  play(governor, { times: [1, 2.1, 3.1, 4.1], rate: 0.9 }, 300)
  expect(governor.stats.now).toBe(0)
  play(governor, { times: [1, 1.1, 1.2, 1.3], rate: 0.9 }, 4000)
  expect(governor.stats.now).toBe(3)
  play(governor, { times: [1, 1.5, 2, 2.5], rate: 0.9 }, 1000)
  play(governor, { times: [1, 1.5, 2, 2.5], rate: 0.1 }, 150)
  expect(governor.stats.now).toBe(0)
})

test('does as it is told, and never more than fits', () => {
  const short = new DraftGovernor('auto', 1) // memory for one
  expect(play(short, { times: [1, 1.1, 1.2, 1.3], rate: 0.9 }, 2000).used.slice(2)).toEqual([0, 0])
  expect(short.stats.now).toBe(1)
  expect(play(new DraftGovernor(2), { times: [1, 9, 9, 9], rate: 0 }, 50).used).toEqual([0, 0, 50, 0])
  expect(new DraftGovernor(3).next(1)).toBe(1)
  const governor = new DraftGovernor('auto')
  play(governor, { times: [1, 1.1, 1.2, 1.3], rate: 0.9 }, 2000)
  expect(governor.next(1)).toBe(1)
  expect(governor.next(0)).toBe(0)
})

describe('on machines of any kind', () => {
  const tokensOf = (rate: number, guesses: number): number => 1 + (guesses > 0 ? rate * tokensOf(rate, guesses - 1) : 0)

  /** A first guess costs up to two tokens, and one in five times up to three; all else is as it comes. */
  const anyMachine = (random: () => number): Machine => {
    const first = 1 + random() * (random() < 0.2 ? 3 : 2)
    const second = first + random() * 1.2
    const times = [1, first, second, second + random() * 1.2]
    const hangs = random() < 0.5 ? 0 : 0.01
    return { times, rate: random(), spread: random() * 0.6, hangs, head: random() * 0.04 }
  }

  const runs = Array.from({ length: 400 }, (_, seed) => {
    const random = seededRandom(seed)
    const machine = anyMachine(random)
    const governor = new DraftGovernor('auto')
    let [seconds, made] = [0, 0]
    const speedAfter = [200, 1000, 4000].map(tokens => {
      const run = play(governor, machine, tokens - made, random)
      seconds += run.seconds
      made += run.made
      return made / seconds
    })
    const gain = Math.max(...[1, 2, 3].map(guesses => tokensOf(machine.rate, guesses) / machine.times[guesses]))
    return { machine, speedAfter, gain, firstGain: (1 + machine.rate) / machine.times[1] }
  })
  const slowest = (after: number) => [...runs].sort((a, b) => a.speedAfter[after] - b.speedAfter[after])

  test.each([
    [200, 0, 0.97, 0.94],
    [1000, 1, 0.975, 0.95],
    [4000, 2, 0.98, 0.97],
  ])(
    'after %i tokens hardly anything is lost: in 99 of 100 runs 3 percent, and in none much more',
    (_, after, most, worst) => {
      const runs = slowest(after)
      expect(runs[4].speedAfter[after], JSON.stringify(runs[4])).toBeGreaterThan(most)
      expect(runs[0].speedAfter[after], JSON.stringify(runs[0])).toBeGreaterThan(worst)
    },
  )

  test('what pays by a tenth is found: nearly all of it is had in the long run, half of it in a thousand tokens', () => {
    const paying = runs.filter(({ firstGain }) => firstGain > 1.1)
    expect(paying.length).toBeGreaterThan(50)
    const share = (after: number) =>
      paying.map(({ speedAfter, gain }) => (speedAfter[after] - 1) / (gain - 1)).sort((a, b) => a - b)
    expect(share(1)[paying.length >> 1]).toBeGreaterThan(0.7)
    expect(share(2)[paying.length >> 1]).toBeGreaterThan(0.85)
    expect(share(2)[paying.length >> 4]).toBeGreaterThan(0.4)
  })
})

test('the head is kept up to date where guesses are made or will be soon, and else hardly ever', () => {
  expect([new DraftGovernor(0).needsHead, new DraftGovernor(1).needsHead]).toEqual([false, true])
  const governor = new DraftGovernor('auto')
  expect(governor.needsHead, 'of the first prompt').toBe(true)
  const bad: Machine = { times: [1, 2.1, 3, 4], rate: 0.5 }
  play(governor, bad, 200)
  let kept = 0
  for (let i = 0; i < 2000; i++) {
    if (governor.needsHead) kept++
    if (governor.next(3) > 0) expect(governor.needsHead).toBe(true)
    play(governor, bad, 1)
  }
  expect(kept).toBeLessThan(400)
  play(governor, { times: [1, 1.1, 1.2, 1.3], rate: 0.9 }, 10_000)
  expect(governor.stats.now).toBe(3)
  expect(governor.needsHead).toBe(true)
})
