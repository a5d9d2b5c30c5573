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
  expect(shareOf(16, drive(new TeamGovernor(16), 5000, bigModel))).toBeGreaterThan(0.99)
  const crowded = { seconds: (size: number) => (size > 12 ? 1.6 : 1) / size, waited: () => 0.1 }
  expect(shareOf(12, drive(new TeamGovernor(16), 5000, crowded))).toBeGreaterThan(0.98)
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
  used(80, () => false)
  expect(
    shareOf(
      14,
      used(400, () => false),
    ),
  ).toBeGreaterThan(0.85)
  used(80, () => true)
  expect(
    shareOf(
      8,
      used(400, () => true),
    ),
    'always streaming',
  ).toBeGreaterThan(0.5)
})

test('one worker needs no trial', () => {
  expect(new Set(drive(new TeamGovernor(1), 100, bigModel))).toEqual(new Set([1]))
})
