// When a thread that waits for the GPU may sleep, on a clock that goes by what it sleeps.
import { expect, test } from 'vitest'
import { GentleWait } from '#moeflux/compute/webgpu/gentleWait.js'

/** What resolves when it is told to. */
function later<T>() {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>(done => {
    resolve = done
  })
  return { promise, resolve }
}

const settled = () => new Promise(resolve => setTimeout(resolve, 0))

/** A clock, turns of an event loop that are taken by hand, and what was slept. */
function machine() {
  const turns: (() => void)[] = []
  const made = { time: 0, slept: [] as number[], turns }
  const sleep = (ms: number) => {
    made.slept.push(ms)
    made.time += ms
  }
  const wait = new GentleWait(
    sleep,
    () => made.time,
    work => turns.push(work),
  )
  /** All turns that there are; a turn may ask for one more. */
  const run = () => {
    for (let work = turns.shift(); work !== undefined; work = turns.shift()) work()
  }
  /** One reading of a kind, which comes at a time. */
  const take = async (kind: string, ms: number) => {
    const { promise, resolve } = later<string>()
    const end = made.time + ms
    const reading = wait.until(kind, promise)
    run()
    const woke = made.time
    made.time = Math.max(end, woke)
    resolve(kind)
    expect(await reading).toBe(kind)
    await settled()
    return woke
  }
  return { ...made, made, wait, run, take }
}

test('sleeps in small pieces for three quarters of the shortest time of late, and not the first time', async () => {
  const { made, take } = machine()
  expect(await take('token', 4)).toBe(0)
  expect(await take('token', 3)).toBeCloseTo(4 + 3)
  expect(Math.max(...made.slept)).toBeCloseTo(0.1)
  const before = made.time
  expect((await take('token', 5)) - before).toBeCloseTo(0.75 * 3)
  for (let i = 0; i < 8; i++) await take('token', 6)
  const later = made.time
  expect((await take('token', 6)) - later, 'what was shorter is long ago').toBeCloseTo(0.75 * 6)
  const other = made.time
  expect(await take('round', 9), 'of another kind nothing is known').toBe(other)
})

test('never sleeps while something else may have come, and goes on when it has', async () => {
  const { made, wait, run, take } = machine()
  await take('long', 8)
  await take('short', 2)
  const begin = made.time
  const long = new Promise<void>(() => {})
  const short = later<void>()
  void wait.until('long', long)
  const reading = wait.until('short', short.promise)
  run()
  expect(made.time - begin).toBeCloseTo(1.5)
  short.resolve(undefined)
  await reading
  await settled()
  run()
  expect(made.time - begin).toBeCloseTo(6)
  expect(made.turns).toHaveLength(0)
})

test('what fails is nobody’s time, and no turn is taken when nothing is waited for', async () => {
  const { made, wait, run, take } = machine()
  await take('token', 4)
  const begin = made.time
  await expect(wait.until('token', Promise.reject(new Error('lost')))).rejects.toThrow('lost')
  await settled()
  run()
  expect(made.time).toBe(begin)
  expect(made.turns).toHaveLength(0)
  expect((await take('token', 4)) - begin).toBeCloseTo(3)
})

test('does nothing where nobody asks the GPU again and again', async () => {
  const never = () => {
    throw new Error('a turn was taken')
  }
  const wait = new GentleWait(null, () => 0, never)
  const reading = Promise.resolve(5)
  expect(wait.until('token', reading)).toBe(reading)
  expect(await reading).toBe(5)
})
