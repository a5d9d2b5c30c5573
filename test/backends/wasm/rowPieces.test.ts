// How rows are cut into pieces: every row once, and nobody waits long for whoever took the last piece.
import { describe, expect, test } from 'vitest'
import { cutRows, type MatrixRows, pieceAt } from '#moeflux/backends/wasm/layers/rowPieces.js'

/** Matrices that are multiplied in one phase: of a layer with 30 billion weights, of its head, and of the built-in model. */
const PHASES: Record<string, MatrixRows[]> = {
  'input of a delta net': [8192, 4096, 32, 32].map(rows => ({ rows, productsPerRow: 2048 })),
  'output of a mixer': [{ rows: 2048, productsPerRow: 4096 }],
  head: [{ rows: 248_320, productsPerRow: 2048 }],
  small: [{ rows: 200, productsPerRow: 64 }],
  odd: [
    { rows: 1001, productsPerRow: 700 },
    { rows: 1, productsPerRow: 700 },
    { rows: 0, productsPerRow: 700 },
  ],
}
const WORKERS = [1, 2, 3, 6, 8, 12, 14, 16, 64]

function piecesOf(matrices: readonly MatrixRows[], workers: number, hasManyTokens = false) {
  return cutRows(matrices, workers, hasManyTokens).map(cut =>
    Array.from({ length: cut.pieces }, (_, piece) => pieceAt(cut, piece)),
  )
}

describe.each(Object.entries(PHASES))('%s', (_, matrices) => {
  test.each(WORKERS)('%i workers: every row is in one piece, in order, and pieces begin at multiples of 8', workers => {
    for (const hasManyTokens of [false, true]) {
      piecesOf(matrices, workers, hasManyTokens).forEach((pieces, index) => {
        const ends = [0, ...pieces.map(([, end]) => end)]
        expect(pieces.map(([begin]) => begin)).toEqual(ends.slice(0, -1))
        expect(pieces.every(([begin, end]) => begin % 8 === 0 && end > begin)).toBe(true)
        expect(ends.at(-1)).toBe(matrices[index].rows)
      })
    }
  })
})

/** When all are done, if whoever is free takes the next piece and some begin late; over the same without any loss. */
function lateness(matrices: readonly MatrixRows[], workers: number): number {
  const free = Array.from({ length: workers }, (_, worker) => (worker % 5) * 10_000)
  let sum = free.reduce((a, b) => a + b)
  piecesOf(matrices, workers).forEach((pieces, index) => {
    for (const [begin, end] of pieces) {
      const products = (end - begin) * matrices[index].productsPerRow
      free[free.indexOf(Math.min(...free))] += products
      sum += products
    }
  })
  return Math.max(...free) / (sum / workers)
}

test.each([
  ['input of a delta net', 12, 1.03],
  ['input of a delta net', 16, 1.03],
  ['output of a mixer', 12, 1.06],
  ['output of a mixer', 14, 1.06],
  ['head', 12, 1.01],
  ['head', 2, 1.01],
] as const)('%s on %i workers ends within %f of an even share', (name, workers, most) => {
  expect(lateness(PHASES[name], workers)).toBeLessThan(most)
})

test('with many tokens no piece is so small that activations are not used again', () => {
  for (const pieces of piecesOf(PHASES['output of a mixer'], 64, true)) {
    for (const [begin, end] of pieces) expect(end - begin).toBeGreaterThanOrEqual(32)
  }
})
