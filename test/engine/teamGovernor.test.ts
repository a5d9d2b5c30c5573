// How many workers a small step runs on: the governor against machines whose speeds are known.
import { expect, test } from 'vitest'
import { TeamGovernor } from '#moeflux/backends/wasm/teamGovernor.js'
import { seededRandom } from '../support/random.js'

interface Machine {
  seconds(size: number): number // for a step, give or take a tenth
  waited(size: number): number // share of it
}

/** The sizes that steps ran on. */
function drive(governor: TeamGovernor, steps: number, machine: Machine): number[] {
  const random = seededRandom(3)
  const sizes: number[] = []
  for (let i = 0; i < steps; i++) {
    const { size } = governor
    sizes.push(size)
    const seconds = machine.seconds(size) * (0.9 + 0.2 * random())
    governor.stepDone({ seconds, waited: size === 1 ? 0 : machine.waited(size), rows: 1, isStalled: false })
  }
  return sizes
}

const shareOf = (size: number, sizes: readonly number[]) => sizes.filter(each => each === size).length / sizes.length

const bigModel: Machine = { seconds: size => 1 / size, waited: () => 0.05 }
const busy: Machine = { seconds: size => (size === 1 ? 1.2 : 5), waited: () => 0.6 }

test('takes all workers, without a trial, where they do not wait for each other', () => {
  expect(new Set(drive(new TeamGovernor(6), 5000, bigModel))).toEqual(new Set([6]))
})

test('begins with four of five where there are many, and finds all, or the number that leaves processors to others', () => {
  for (const [processors, first] of [
    [8, 6],
    [12, 9],
    [16, 13],
    [64, 52],
  ]) {
    expect(new TeamGovernor(processors).size).toBe(first)
  }
  // Who asks for fewer leaves processors to others already.
  expect(new TeamGovernor(12, 16).size).toBe(12)
  expect(new TeamGovernor(8, 16).size).toBe(8)
  expect(shareOf(20, drive(new TeamGovernor(20, 22), 5000, bigModel).slice(800))).toBeGreaterThan(0.9)
  expect(shareOf(16, drive(new TeamGovernor(16), 5000, bigModel).slice(400))).toBeGreaterThan(0.97)
  const crowded = { seconds: (size: number) => (size > 13 ? 1.6 : 1) / size, waited: () => 0.1 }
  expect(shareOf(13, drive(new TeamGovernor(16), 5000, crowded))).toBeGreaterThan(0.97)
})

test('keeps all workers where they wait and are faster nevertheless', () => {
  const sizes = drive(new TeamGovernor(8), 20_000, { seconds: size => 1 / size, waited: () => 0.4 })
  expect(shareOf(8, sizes)).toBeGreaterThan(0.98)
})

test('works alone where barriers cost more than they bring', () => {
  const sizes = drive(new TeamGovernor(8), 20_000, { seconds: size => 1 + size, waited: () => 0.5 })
  expect(shareOf(1, sizes.slice(500))).toBeGreaterThan(0.95)
})

test('tries fewer workers for short steps even where they do not wait for each other', () => {
  const sizes = drive(new TeamGovernor(2), 5000, { seconds: size => 0.001 * size, waited: () => 0.1 })
  expect(shareOf(1, sizes.slice(500))).toBeGreaterThan(0.95)
})

test('finds the best number in between', () => {
  const machine = { seconds: (size: number) => 1 / size + size / 16, waited: (size: number) => size / 16 }
  expect(shareOf(4, drive(new TeamGovernor(16), 20_000, machine).slice(500))).toBeGreaterThan(0.95)
})

test('notices when the machine becomes busy, and when it is free again', () => {
  const governor = new TeamGovernor(2)
  drive(governor, 3000, bigModel)
  expect(shareOf(1, drive(governor, 300, busy).slice(100))).toBeGreaterThan(0.7)
  expect(shareOf(2, drive(governor, 3000, bigModel).slice(1000))).toBeGreaterThan(0.95)
})

test('finds half of all where two processors are one core, and all where they are not', () => {
  const halves = { seconds: (size: number) => (size <= 8 ? 1 / size : 0.14 + size / 1000), waited: () => 0.1 }
  expect(shareOf(8, drive(new TeamGovernor(16), 600, halves).slice(120))).toBeGreaterThan(0.8)
  expect(shareOf(16, drive(new TeamGovernor(16), 800, bigModel).slice(300))).toBeGreaterThan(0.8)
})

test('compares steps with those of as many rows, whatever comes between', () => {
  const governor = new TeamGovernor(2)
  const random = seededRandom(4)
  const sizes: number[] = []
  for (let i = 0; i < 3000; i++) {
    const rows = i % 4 < 2 ? 1 : 3 // as long as a size of team takes its turn
    const { size } = governor
    sizes.push(size)
    governor.stepDone({ seconds: (rows * (0.9 + 0.2 * random())) / size, waited: 0.3, rows, isStalled: false })
  }
  expect(shareOf(2, sizes)).toBeGreaterThan(0.95)
})

test('does not choose by steps that wait for experts which are on their way into memory', () => {
  const random = seededRandom(7)
  const governor = new TeamGovernor(16)
  const used = (steps: number, stalls: (i: number) => boolean) =>
    Array.from({ length: steps }, (_, i) => {
      const { size } = governor
      const isStalled = stalls(i)
      // While experts are read, whoever computes takes a processor from who reads.
      const seconds = (isStalled ? 1 + size / 16 : 1 / Math.min(size, 14) + size / 1000) * (0.9 + 0.2 * random())
      governor.stepDone({ seconds, waited: 0.1, rows: 1, isStalled })
      return size
    })
  expect(
    shareOf(
      13,
      used(100, i => i < 60 || i % 3 === 0),
    ),
    'cold',
  ).toBeGreaterThan(0.95)
  used(400, () => false)
  expect(
    shareOf(
      14,
      used(400, () => false),
    ),
  ).toBeGreaterThan(0.85)
  used(200, () => true)
  expect(
    shareOf(
      8,
      used(400, () => true),
    ),
    'always streaming',
  ).toBeGreaterThan(0.5)
})

interface Team {
  readonly ms: number // a step
  readonly hangs: number // share of the steps in which the system puts a member aside
}

interface Processors {
  readonly teams: ReadonlyMap<number, Team>
  readonly hangMs: number
}

/** Sixteen processors as they were measured: when nobody else used the machine, and when somebody did. */
const QUIET: Processors = {
  hangMs: 8,
  teams: new Map([
    [8, { ms: 15.3, hangs: 0.01 }],
    [10, { ms: 11.9, hangs: 0.01 }],
    [12, { ms: 10.5, hangs: 0.02 }],
    [14, { ms: 9.6, hangs: 0.1 }],
    [15, { ms: 9.4, hangs: 0.25 }],
    [16, { ms: 9.3, hangs: 0.5 }],
  ]),
}
const CROWDED: Processors = {
  hangMs: 20,
  teams: new Map([
    [8, { ms: 14, hangs: 0.02 }],
    [10, { ms: 11.6, hangs: 0.05 }],
    [12, { ms: 10.2, hangs: 0.04 }],
    [14, { ms: 9.6, hangs: 0.2 }],
    [15, { ms: 9.4, hangs: 0.6 }],
    [16, { ms: 9.3, hangs: 0.8 }],
  ]),
}

/** Milliseconds that a step on so many takes there; `left` is the share of the processors that others leave. */
function sixteen({ teams, hangMs }: Processors, random: () => number, left = () => 1): (size: number) => number {
  return size => {
    const { ms, hangs } = teams.get(size) ?? { ms: 110 / size, hangs: 0.01 }
    const busy = size > 16 * left() ? 3 : 1 // somebody waits for a processor at each barrier
    const outlier = random() < 0.005 ? 60 : 0 // whatever the size
    return busy * ms * (0.92 + 0.16 * random()) + (random() < hangs ? hangMs : 0) + outlier
  }
}

/** Its speed from step `from` on, over that of the best size that keeps to one. */
function shareOfBest(
  processors: Processors,
  seed: number,
  [from, to]: readonly [number, number],
  between?: (governor: TeamGovernor) => void,
): number {
  const random = seededRandom(seed)
  const machine = sixteen(processors, random)
  const governor = new TeamGovernor(16)
  let ms = 0
  for (let i = 0; i < to; i++) {
    if (i % 37 === 36) between?.(governor)
    const { size } = governor
    const own = machine(size)
    if (i >= from) ms += own
    governor.stepDone({ seconds: own / 1000, waited: waitedOf(size), rows: 1, isStalled: false })
  }
  const fixed = [...processors.teams.keys()].map(size => {
    let sum = 0
    for (let i = from; i < to; i++) sum += machine(size)
    return sum
  })
  return Math.min(...fixed) / ms
}

const WAITED = new Map([
  [8, 0.08],
  [10, 0.1],
  [12, 0.13],
  [14, 0.22],
  [15, 0.35],
  [16, 0.42],
])
const waitedOf = (size: number) => WAITED.get(size) ?? 0.05

const meanOf = (values: readonly number[]) => values.reduce((a, b) => a + b) / values.length
const seeds = Array.from({ length: 30 }, (_, seed) => seed + 1)

test.each([
  { name: 'quiet', processors: QUIET, least: 0.97, worst: 0.92, first: 0.92 },
  { name: 'crowded', processors: CROWDED, least: 0.94, worst: 0.84, first: 0.8 },
])('counts what hangs cost, and little is lost in looking for the best: a $name machine', each => {
  const later = seeds.map(seed => shareOfBest(each.processors, seed, [200, 1500]))
  expect(meanOf(later)).toBeGreaterThan(each.least)
  expect(Math.min(...later)).toBeGreaterThan(each.worst)
  expect(meanOf(seeds.map(seed => shareOfBest(each.processors, seed, [0, 200])))).toBeGreaterThan(each.first)
})

test('prompts between tokens do not count', () => {
  // The step after a prompt takes four times as long, as if the size of the moment were to blame.
  const after = (governor: TeamGovernor) => {
    governor.interrupt()
    governor.stepDone({ seconds: 0.04, waited: 0.2, rows: 1, isStalled: false })
  }
  expect(meanOf(seeds.map(seed => shareOfBest(QUIET, seed, [200, 1500], after)))).toBeGreaterThan(0.96)
})

test('gives way to others who come, and takes the processors back when they have gone', () => {
  for (const seed of seeds.slice(0, 10)) {
    const random = seededRandom(seed)
    let left = 1
    const machine = sixteen(QUIET, random, () => left)
    const governor = new TeamGovernor(16)
    const used = (steps: number) =>
      Array.from({ length: steps }, () => {
        const { size } = governor
        governor.stepDone({ seconds: machine(size) / 1000, waited: waitedOf(size), rows: 1, isStalled: false })
        return size
      })
    used(600)
    left = 0.5
    const busy = used(1200).slice(600)
    expect(busy.filter(size => size <= 8).length / busy.length, 'busy').toBeGreaterThan(0.8)
    left = 1
    const free = used(6000).slice(4000)
    expect(free.filter(size => size >= 10).length / free.length, 'free').toBeGreaterThan(0.8)
  }
})

test('steps of another kind than what is tried run on as many workers as before', () => {
  const governor = new TeamGovernor(2)
  const sizes = { tried: new Set<number>(), other: new Set<number>() }
  for (let step = 0; step < 40; step++) {
    const size = governor.sizeFor(1)
    if (governor.isTrying) {
      sizes.tried.add(size)
      sizes.other.add(governor.sizeFor(4))
    } else expect(size).toBe(2)
    governor.stepDone({ seconds: 0.001, waited: 0.3, rows: 1, isStalled: false })
  }
  expect(sizes).toEqual({ tried: new Set([1, 2]), other: new Set([2]) })
})

/** A machine whose processors others take: how many of them at a time, in ms, and how soon a member without one is put aside. */
interface Visited {
  readonly processors: number
  readonly taken: (ms: number) => number
  readonly hangs: number
}

/** Milliseconds that a step takes there, from the time `now` on. */
function visitedStep({ processors, taken, hangs }: Visited, size: number, now: number, random: () => number): number {
  const phases = 66
  const work = (105 * (1 + 0.012 * size)) / size
  const meeting = phases * (0.004 + 0.0012 * size)
  const without = Math.max(0, size - (processors - taken(now) - 1)) // the thread that asks for tokens has one, too
  let ms = 0.7 + work * (1 + 0.15 * random()) + meeting
  for (let phase = 0; phase < phases; phase++) {
    if (random() < hangs * without) ms -= 3 * Math.log(1 - random())
  }
  return ms
}

/** Steps of the governor over those of the best fixed number, between two times. */
function shareOfSteps(machine: Visited, seed: number, from: number, to: number): number {
  const steps = (governor: { size: number; stepDone: TeamGovernor['stepDone'] }) => {
    const random = seededRandom(seed)
    let count = 0
    for (let now = 0; now < to; ) {
      const ms = visitedStep(machine, governor.size, now, random)
      const waited = Math.max(0, 1 - 105 / governor.size / ms)
      governor.stepDone({ seconds: ms / 1000, waited, rows: 1, isStalled: false })
      now += ms
      if (now > from) count++
    }
    return count
  }
  const { processors } = machine
  const fixed = [0.5, 0.625, 0.75, 0.875, 1].map(share => {
    const size = Math.round(processors * share)
    return steps({ size, stepDone() {} })
  })
  return steps(new TeamGovernor(processors)) / Math.max(...fixed)
}

/** Which of the levels is meant at a time: another one every `period` ms. */
const turns = (period: number, levels: readonly number[]) => (ms: number) =>
  levels[(Math.floor(ms / period) * 7) % levels.length]

test.each([
  {
    name: 'a host gives some to others, now these, now those',
    taken: turns(700, [1, 3, 1, 4, 3, 1, 1, 4]),
    hangs: 0.036,
    first: 0.87,
    later: 0.92,
  },
  { name: 'nobody takes any', taken: () => 0, hangs: 0.012, first: 0.9, later: 0.97 },
  {
    name: 'a program takes four for half a minute',
    taken: (ms: number) => (ms > 8000 && ms < 38_000 ? 4 : 0),
    hangs: 0.012,
    first: 0.9,
    later: 0.94,
  },
  {
    name: 'a program takes eight for half a minute',
    taken: (ms: number) => (ms > 5000 && ms < 35_000 ? 8 : 0),
    hangs: 0.012,
    first: 0.9,
    later: 0.9,
  },
])(
  'sixteen processors, $name: near the best fixed number from the first seconds on',
  ({ first, later, ...machine }) => {
    const shares = (from: number, to: number) =>
      seeds.slice(0, 6).map(seed => shareOfSteps({ processors: 16, ...machine }, seed + 700, from, to))
    expect(meanOf(shares(0, 4000))).toBeGreaterThan(first)
    expect(meanOf(shares(4000, 24_000))).toBeGreaterThan(later)
  },
)

test('one worker needs no trial', () => {
  expect(new Set(drive(new TeamGovernor(1), 100, bigModel))).toEqual(new Set([1]))
})
