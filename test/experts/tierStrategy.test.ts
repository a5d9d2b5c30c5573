// What to do about experts that are not on the GPU, from measured rates.
import { expect, test } from 'vitest'
import { chooseWay, expertsToBring, type TierRates } from '#moeflux/experts/tierSpeed.js'

const micro = 1e-6
const of = (threads: number, job: number, expert: number, token = 6) => ({
  threads,
  jobSeconds: job * micro,
  expertSeconds: expert * micro,
  tokenSeconds: token * micro,
})
const rates = (processors: TierRates['processors'], upload: number): TierRates => ({
  processors,
  uploadSeconds: upload * micro,
  roundTripSeconds: 60 * micro,
})

test('processors that are faster than the bus compute, on the fewest threads that are nearly as fast as any', () => {
  const chosen = chooseWay(rates([of(4, 20, 60), of(6, 25, 40), of(8, 30, 36)], 150))
  expect(chosen).toMatchObject({ way: 'hybrid', threads: 6, usesToPay: 8 })
  expect(chosen.line).toBe(
    '6 threads compute the experts that are not on the GPU: an expert takes 40 µs to compute and 150 µs to send to the GPU, which answers in 60 µs',
  )
})

test('more threads where they are worth it', () => {
  expect(chooseWay(rates([of(4, 20, 100), of(8, 20, 50)], 400)).threads).toBe(8)
})

test('a bus that is faster than the processors brings experts', () => {
  const chosen = chooseWay(rates([of(1, 10, 900), of(2, 20, 500)], 80))
  expect(chosen).toMatchObject({ way: 'upload', threads: 2, usesToPay: 2 })
  expect(chosen.line).toContain('are sent to it')
})

test('processors alone where the GPU answers so late that they would have done', () => {
  const slow = { ...rates([of(8, 20, 40)], 400), roundTripSeconds: 2000 * micro }
  const alone = { layers: 40, expertsPerToken: 8, residentExperts: 600 }
  expect(chooseWay(slow).way).toBe('hybrid')
  expect(chooseWay(slow, alone)).toMatchObject({ way: 'cpu', threads: 8 })
  expect(chooseWay(slow, alone).line).toContain('8 threads alone')
  expect(chooseWay({ ...slow, roundTripSeconds: 500 * micro }, alone).way).toBe('hybrid')
})

test('whatever is measured, numbers that can be used', () => {
  for (const [expert, token, upload] of [
    [1e-6, 1e-9, 1e9],
    [1e9, 1e9, 1e-9],
    [1e-9, 0, 1],
  ]) {
    const { usesToPay, prompts, threads } = chooseWay(rates([of(1, 0, expert, token)], upload))
    expect(threads).toBe(1)
    expect(usesToPay).toBeGreaterThanOrEqual(2)
    expect(usesToPay).toBeLessThanOrEqual(16)
    expect(expertsToBring(new Map([[3, 64]]), prompts).size).toBe(upload < expert ? 1 : 0)
  }
})
