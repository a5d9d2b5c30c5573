// How many workers a small step runs on: the governor against machines whose speeds are known.
import { expect, test } from 'vitest'
import { TeamGovernor } from '#moeflux/compute/wasm/teamGovernor.js'
import { seededRandom } from '../support/random.js'

/** Runs steps on a machine that needs `seconds(size)` for one, give or take a tenth; the sizes used. */
function drive(governor: TeamGovernor, steps: number, seconds: (size: number) => number): number[] {
  const random = seededRandom(3)
  const sizes: number[] = []
  for (let i = 0; i < steps; i++) {
    sizes.push(governor.size)
    governor.stepDone(seconds(governor.size) * (0.9 + 0.2 * random()))
  }
  return sizes
}

const shareOf = (size: number, sizes: readonly number[]) => sizes.filter(each => each === size).length / sizes.length

test('keeps all workers where they help', () => {
  const sizes = drive(new TeamGovernor(8), 20_000, size => 1 / size)
  expect(sizes[0]).toBe(8)
  expect(shareOf(8, sizes)).toBeGreaterThan(0.98)
})

test('works alone where barriers cost more than they bring', () => {
  const sizes = drive(new TeamGovernor(8), 20_000, size => 1 + size)
  expect(shareOf(1, sizes.slice(500))).toBeGreaterThan(0.95)
})

test('finds the best number in between', () => {
  const sizes = drive(new TeamGovernor(16), 20_000, size => 1 / size + size / 16)
  expect(shareOf(4, sizes.slice(500))).toBeGreaterThan(0.95)
})

test('notices when the machine becomes busy, and when it is free again', () => {
  const governor = new TeamGovernor(2)
  const free = (size: number) => 1 / size
  const busy = (size: number) => (size === 2 ? 5 : 1.2)
  drive(governor, 3000, free)
  const whileBusy = drive(governor, 300, busy)
  expect(shareOf(1, whileBusy.slice(100))).toBeGreaterThan(0.7)
  const after = drive(governor, 3000, free)
  expect(shareOf(2, after.slice(1000))).toBeGreaterThan(0.95)
})

test('one worker needs no trial', () => {
  expect(new Set(drive(new TeamGovernor(1), 100, () => 1))).toEqual(new Set([1]))
})
