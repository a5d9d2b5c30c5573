import { expect, test } from 'vitest'
import { keepAliveMs } from '#moeflux/apps/server/ollama/schemas.js'
import { parseDuration } from '#moeflux/base/quantities.js'

test('times as people write them', () => {
  for (const [text, ms] of [
    ['5', 5000],
    ['0.25', 250],
    ['200ms', 200],
    [' 10 m ', 600_000],
    ['1h30m', 5_400_000],
    ['1h 30m 5s', 5_405_000],
    ['0', 0],
  ] as const) {
    expect(parseDuration(text)).toBe(ms)
  }
  for (const text of ['', ' ', 'm', '-5', '1.5.2s', '5 minutes', '1d', '1e3', '5m!']) {
    expect(parseDuration(text)).toBeNull()
  }
  expect(parseDuration(`${'9'.repeat(60_000)}x`)).toBeNull() // nothing that takes long to refuse
})

test('how long ollama’s clients keep a model', () => {
  expect(keepAliveMs(0)).toBe(0)
  expect(keepAliveMs(90)).toBe(90_000)
  expect(keepAliveMs('+5m')).toBe(300_000)
  for (const ever of [-1, '-1', '-5m']) expect(keepAliveMs(ever)).toBe(Number.POSITIVE_INFINITY)
  for (const wrong of ['', '--5m', 'soon', '5m-']) expect(keepAliveMs(wrong)).toBeNull()
})
