// The best token of a row: workers look at pieces of it, in whatever order they come by them.
import { expect, test } from 'vitest'
import { BestTokens } from '#moeflux/backends/wasm/layers/bestTokens.js'
import { JobBoard } from '#moeflux/backends/wasm/workers/jobBoard.js'
import { seededRandom } from '../../support/random.js'

const VOCAB = 96
const ROWS = 3
const PIECE = 8

/** What all workers together find, when pieces are dealt to them at random. */
function find(logits: Float32Array, workers: number, random: () => number): number[] {
  const shape = { threads: 4, chunkTokens: 1, layers: 1, fullLayers: 0, moeLayers: 1, experts: 1, headRows: ROWS }
  const board = new JobBoard(shape)
  const argmax = (x: number, count: number) => {
    const piece = logits.subarray(x / 4, x / 4 + count)
    return piece.every(Number.isFinite) ? piece.indexOf(Math.max(...piece)) : -1
  }
  const lanes = Array.from({ length: workers }, (_, index) => ({
    board,
    team: { index, size: workers },
    kernels: [{ argmax }],
    scratch: { logits: { address: 0, stride: VOCAB * 4 } },
    model: { lmHead: { bank: 0 } },
    float: (_bank: number, address: number) => logits[address / 4],
  }))
  const found = lanes.map(lane => new BestTokens(lane as unknown as ConstructorParameters<typeof BestTokens>[0]))
  for (const each of found) each.begin()
  for (let begin = 0; begin < VOCAB; begin += PIECE) {
    found[Math.floor(random() * workers)].see(ROWS, begin, begin + PIECE)
  }
  for (const each of found) each.show(ROWS)
  return Array.from({ length: ROWS }, (_, row) => found[0].ofAll(row))
}

test('is the first of the highest, whoever has seen it', () => {
  const random = seededRandom(5)
  for (let i = 0; i < 300; i++) {
    const logits = Float32Array.from({ length: ROWS * VOCAB }, () => Math.floor(random() * 12) - 20) // many are equal
    const rows = Array.from({ length: ROWS }, (_, row) => [...logits.subarray(row * VOCAB, (row + 1) * VOCAB)])
    const expected = rows.map(row => row.indexOf(Math.max(...row)))
    expect(find(logits, 1 + (i % 4), random)).toEqual(expected)
  }
})

test('is none in a row where one logit is not finite, and says nothing of the other rows', () => {
  const random = seededRandom(6)
  for (const bad of [Number.NaN, Infinity, -Infinity]) {
    for (let at = 0; at < VOCAB; at += 7) {
      const logits = Float32Array.from({ length: ROWS * VOCAB }, random)
      logits[VOCAB + at] = bad
      const [first, second, third] = find(logits, 4, random)
      expect(second).toBe(-1)
      expect(Math.min(first, third)).toBeGreaterThanOrEqual(0)
    }
  }
})
