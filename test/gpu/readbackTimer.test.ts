// When a thread that waits for the GPU may sleep, and when it asks, on a clock that goes by what it sleeps.
import { expect, test } from 'vitest'
import { GentleWait } from '#moeflux/gpu/device/readbackTimer.js'

const settled = () => new Promise(resolve => setImmediate(resolve))

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
  /** All turns that there are, until nobody asks for one more. */
  const run = async () => {
    await settled()
    for (let work = turns.shift(); work !== undefined; work = turns.shift()) {
      work()
      await settled()
    }
  }
  /** What is submitted now and comes after so many ms; tells when it was asked for. */
  const submit = (kind: string, ms: number) => {
    const asked: { at: number | null } = { at: null }
    const end = made.time + ms
    const reading = wait.until(kind, async () => {
      asked.at = made.time
      made.time = Math.max(end, made.time)
      return kind
    })
    return { reading, asked }
  }
  /** One of a kind, alone. */
  const take = async (kind: string, ms: number) => {
    const began = made.time
    const { reading, asked } = submit(kind, ms)
    await run()
    expect(await reading).toBe(kind)
    return (asked.at as number) - began
  }
  return { made, wait, run, submit, take }
}

/** So often that it is known how long it takes. */
async function know({ take }: ReturnType<typeof machine>, kind: string, ms: number): Promise<void> {
  for (let i = 0; i < 3; i++) expect(await take(kind, ms)).toBe(0)
}

test('asks when nine tenths of the shortest time of late are over, and at once the first times', async () => {
  const { made, take } = machine()
  for (const ms of [12, 4, 5]) expect(await take('token', ms)).toBe(0)
  expect(await take('token', 5)).toBeCloseTo(3.6)
  expect(Math.max(...made.slept)).toBeCloseTo(0.1)
  for (let i = 0; i < 8; i++) await take('token', 6)
  expect(await take('token', 6), 'what was shorter is long ago').toBeCloseTo(0.9 * 6)
  expect(await take('round', 9), 'of another kind nothing is known').toBe(0)
})

test('asks much earlier after it has asked too late', async () => {
  const all = machine()
  const { take } = all
  await know(all, 'token', 20)
  expect(await take('token', 8)).toBeCloseTo(18)
  expect(await take('token', 8)).toBeCloseTo(0.9 * 9)
  expect(await take('token', 8)).toBeLessThan(0.9 * 8)
  for (let i = 0; i < 8; i++) expect(await take('token', 8)).toBeLessThanOrEqual(0.9 * 8 + 1e-6)
})

test('what is submitted behind something else is asked for after that, by the time that it takes itself', async () => {
  const all = machine()
  const { made, wait, run, submit } = all
  await know(all, 'token', 10)
  const begin = made.time
  const first = submit('token', 10)
  const second = submit('token', 20)
  const third = submit('token', 30)
  await run()
  await Promise.all([first.reading, second.reading, third.reading])
  const asked = [first, second, third].map(({ asked }) => (asked.at as number) - begin)
  expect(asked[0]).toBeCloseTo(9)
  expect(asked[1], 'it began when the first one ended').toBeCloseTo(19)
  expect(asked[2]).toBeCloseTo(29)
  await wait.ended()
  expect(made.turns).toHaveLength(0)
})

test('what fails is nobody’s time, holds nobody up, and no turn is taken when nothing is waited for', async () => {
  const all = machine()
  const { made, wait, run, submit, take } = all
  await know(all, 'token', 4)
  const begin = made.time
  const lost = wait.until('token', () => Promise.reject(new Error('lost')))
  lost.catch(() => {}) // awaited below
  const next = submit('token', 8)
  await run()
  await expect(lost).rejects.toThrow('lost')
  expect(await next.reading).toBe('token')
  await wait.ended()
  expect((next.asked.at as number) - begin).toBeCloseTo(7.2)
  expect(made.turns).toHaveLength(0)
  expect(await take('token', 4), 'the failed one is not remembered').toBeCloseTo(0.9 * 4)
})

test('what throws before it can be waited for is heard of like anything else', async () => {
  const { wait, run } = machine()
  const lost = wait.until('token', () => {
    throw new Error('destroyed')
  })
  lost.catch(() => {}) // awaited below
  await run()
  await expect(lost).rejects.toThrow('destroyed')
  await wait.ended()
})

test('asks at once where nobody asks the GPU again and again', async () => {
  const never = () => {
    throw new Error('a turn was taken')
  }
  const wait = new GentleWait(null, () => 0, never)
  const reading = Promise.resolve(5)
  expect(wait.until('token', () => reading)).toBe(reading)
  await wait.ended()
})
