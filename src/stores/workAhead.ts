// Results in order, of work that is begun before its turn: what comes next travels while what came is worked on. Bounded, so
// that only so much is in memory.

/** Begins `most` items at once. Ends when all that was begun has ended, also where whoever takes the results has given up. */
export async function* workAhead<T, R>(
  items: readonly T[],
  most: number,
  begin: (item: T) => Promise<R>,
): AsyncGenerator<R, void, undefined> {
  const begun: Promise<R>[] = []
  let next = 0
  const fill = () => {
    while (begun.length < most && next < items.length) {
      const work = begin(items[next++])
      work.catch(() => {}) // is told when its turn comes
      begun.push(work)
    }
  }
  try {
    for (fill(); begun.length > 0; ) {
      const result = await begun[0]
      begun.shift()
      fill()
      yield result
    }
  } finally {
    await Promise.allSettled(begun)
  }
}
