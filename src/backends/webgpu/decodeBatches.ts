// Which rows of runs decode together. Pure.

/** Some tokens of a run. */
export interface DecodePiece {
  readonly run: number
  readonly first: number
  readonly count: number
}

/**
 * Cuts runs of so many tokens into batches of at most `most` rows, in order; a piece has at most `longest`. The tokens of a run
 * stay together where they can: a later batch goes on where the one before has ended.
 */
export function decodeBatches(counts: readonly number[], most: number, longest: number): DecodePiece[][] {
  const batches: DecodePiece[][] = []
  let batch: DecodePiece[] = []
  let room = most
  const close = () => {
    if (batch.length > 0) batches.push(batch)
    batch = []
    room = most
  }
  for (const [run, count] of counts.entries()) {
    if (count > room && count <= most) close()
    for (let first = 0; first < count; ) {
      // Two pieces of a run are never in one batch: the second begins with what the first has written.
      if (room === 0 || first > 0) close()
      const taken = Math.min(count - first, room, longest)
      batch.push({ run, first, count: taken })
      room -= taken
      first += taken
    }
  }
  close()
  return batches
}
