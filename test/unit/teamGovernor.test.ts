// How many workers a small step runs on: the governor against machines whose speeds are known.
import { expect, test } from 'vitest'
import { TeamGovernor } from '#moeflux/compute/wasm/teamGovernor.js'
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

test('tries fewer once where there are many, and finds the number that leaves processors to others', () => {
  expect(shareOf(16, drive(new TeamGovernor(16), 5000, bigModel))).toBeGreaterThan(0.97)
  const crowded = { seconds: (size: number) => (size > 12 ? 1.6 : 1) / size, waited: () => 0.1 }
  expect(shareOf(12, drive(new TeamGovernor(16), 5000, crowded))).toBeGreaterThan(0.97)
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
  expect(shareOf(8, drive(new TeamGovernor(16), 400, halves).slice(60))).toBeGreaterThan(0.8)
  expect(shareOf(16, drive(new TeamGovernor(16), 400, bigModel).slice(60))).toBeGreaterThan(0.8)
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
      14,
      used(100, i => i < 60 || i % 3 === 0),
    ),
    'cold',
  ).toBeGreaterThan(0.95)
  used(200, () => false)
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

test('one worker needs no trial', () => {
  expect(new Set(drive(new TeamGovernor(1), 100, bigModel))).toEqual(new Set([1]))
})
