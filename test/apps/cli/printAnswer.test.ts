// The line after an answer: what it says of tokens that were guessed ahead.
import { expect, test } from 'vitest'
import { answerDetails, speedLine } from '#moeflux/apps/cli/printAnswer.js'
import type { EngineStats, Usage } from '#moeflux/index.js'

const usage = { answerTokens: 42, answerSeconds: 1, newTokens: 14, cachedTokens: 0, promptSeconds: 0.1 } as Usage
const stats = { expertHits: 0, expertMisses: 0, drafts: null } as EngineStats
const made = { accepted: 41, rejected: 9 }

function lineOf(drafts: Usage['drafts'], now: number | null): string {
  const governor = { guesses: 0, accepted: 0, rounds: 0, now: now ?? 0, reason: '8% slower with 3' }
  return answerDetails({ ...usage, drafts }, stats, { ...stats, drafts: now === null ? null : governor })
}

test.each([
  ['of a model that does not guess, nothing', undefined, null, ''],
  ['how many were right', made, 3, ' · 41 of 50 guesses right'],
  ['that none are made any more, and why', made, 0, ' · 41 of 50 guesses right, none now (8% slower with 3)'],
  ['that none were made, and why', undefined, 0, ' · no guesses (8% slower with 3)'],
  ['that none were made where there might be', undefined, 2, ' · no guesses'],
])('%s', (_, drafts, now, guesses) => {
  expect(lineOf(drafts, now)).toBe(`prompt 14 tokens, 140 tok/s${guesses}`)
})

test('is short, and leaves the rate out where nothing was computed', () => {
  expect(speedLine(usage)).toBe('42.0 tok/s · 42 tokens')
  expect(speedLine({ ...usage, answerTokens: 1 })).toBe('1.00 tok/s · 1 token')
  const cached = { ...usage, newTokens: 0, cachedTokens: 62, promptSeconds: 0.001 }
  expect(answerDetails(cached, stats, stats)).toBe('prompt 0 new + 62 cached tokens')
})
