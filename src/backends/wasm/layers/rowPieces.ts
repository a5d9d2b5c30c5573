// How the rows of a phase's matrices are cut into pieces, which workers take one by one: large ones as long as much is left, small
// ones at the end, so that nobody waits long for whoever took the last. Results do not depend on it. Pure.

/** Work smaller than this many multiply-adds is not worth sharing out further. */
const LEAST_PRODUCTS = 16_384

/** About 50 µs: what the last worker at a barrier may be late by, if it was put aside. */
const MOST_PRODUCTS = 1_048_576
const ROW_GRAIN = 8
const LARGE_PER_WORKER = 4 // if all were large
const SMALL_PER_LARGE = 4

/** With many tokens a piece has at least so many rows, over which activations in the cache are used again. */
const MANY_TOKENS_ROWS = 32

/** A matrix, or several of the same shape that go together. */
export interface MatrixRows {
  readonly rows: number
  readonly productsPerRow: number // with all tokens
}

export interface RowCut {
  readonly rows: number
  readonly large: number // rows of a large piece
  readonly small: number
  readonly largePieces: number // the first ones
  readonly pieces: number
}

/** Of matrices whose pieces are taken in this order, for so many workers. */
export function cutRows(matrices: readonly MatrixRows[], workers: number, hasManyTokens: boolean): RowCut[] {
  if (workers === 1) {
    return matrices.map(({ rows }) => ({
      rows,
      large: rows,
      small: rows,
      largePieces: rows > 0 ? 1 : 0,
      pieces: rows > 0 ? 1 : 0,
    }))
  }
  let after = 0 // products of what comes later
  const cuts = matrices.toReversed().map(({ rows, productsPerRow }) => {
    const least = hasManyTokens ? MANY_TOKENS_ROWS : LEAST_PRODUCTS / productsPerRow
    const share = Math.min(rows / (workers * LARGE_PER_WORKER), MOST_PRODUCTS / productsPerRow)
    const large = toGrain(Math.max(share, least))
    const small = Math.min(large, toGrain(Math.max(large / SMALL_PER_LARGE, least)))
    // A large piece for each worker is what may be out of step; as much is left in small ones.
    const atEnd = Math.max(0, workers * large - after / productsPerRow)
    after += rows * productsPerRow
    const largePieces = Math.max(0, Math.floor((rows - atEnd) / large))
    return { rows, large, small, largePieces, pieces: largePieces + Math.ceil((rows - largePieces * large) / small) }
  })
  return cuts.reverse()
}

export function pieceAt({ rows, large, small, largePieces }: RowCut, piece: number): [begin: number, end: number] {
  const begin = piece < largePieces ? piece * large : largePieces * large + (piece - largePieces) * small
  return [begin, Math.min(rows, begin + (piece < largePieces ? large : small))]
}

function toGrain(rows: number): number {
  return Math.ceil(Math.max(rows, 1) / ROW_GRAIN) * ROW_GRAIN
}
