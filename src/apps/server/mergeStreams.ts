// Several event streams as one, in the order in which their events come. Leaving it leaves all of them.

export async function* mergeStreams<T>(
  streams: readonly AsyncIterable<T>[],
): AsyncGenerator<{ index: number; value: T }> {
  const iterators = streams.map(stream => stream[Symbol.asyncIterator]())
  const ask = (index: number) => iterators[index].next().then(result => ({ index, result }))
  const waiting = new Map(iterators.map((_, index) => [index, ask(index)]))
  try {
    while (waiting.size > 0) {
      const { index, result } = await Promise.race(waiting.values())
      if (result.done) waiting.delete(index)
      else {
        yield { index, value: result.value }
        waiting.set(index, ask(index))
      }
    }
  } finally {
    for (const pending of waiting.values()) pending.catch(() => {})
    await Promise.all(iterators.map(iterator => iterator.return?.()))
  }
}
