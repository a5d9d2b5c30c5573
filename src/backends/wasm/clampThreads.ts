// How many threads compute where somebody has asked for a number. A thread more than there are processors makes all others
// wait for it at every barrier: a few are taken with a warning, for whoever wants to try, and a number that was meant for
// another machine is not. Pure.

const MOST_PER_PROCESSOR = 2

/** undefined: nobody has. */
export function threadCount(asked: number | undefined, processors: number): number | undefined {
  return asked !== undefined && asked > MOST_PER_PROCESSOR * processors ? processors : asked
}

/** What people should know about the number that they asked for; null: nothing. */
export function threadNotice(asked: number | undefined, processors: number): string | null {
  if (asked === undefined || asked <= processors) return null
  const here = processors === 1 ? 'one processor' : `${processors} processors`
  if (threadCount(asked, processors) === processors) {
    return `${asked} threads on ${here}: ${processors} will compute, more would be slower`
  }
  return `${asked} threads on ${here} wait for each other: ${processors} would be faster`
}
