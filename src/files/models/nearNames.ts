// Finds known names that are similar to one that is not known, for "did you mean …". Pure.

/** Names of one thing. */
export type NameGroup = readonly [string, ...string[]]

const MOST_NEAR = 3
const MIN_LETTERS = 2 // a single letter is part of most names
const MAX_LENGTH = 100 // the distance takes the product of two lengths

/** Those that are as near as the nearest one; of each group the name that is nearest. */
export function nearNames(text: string, groups: readonly NameGroup[]): string[] {
  const wanted = lettersOf(text)
  if (wanted === '' || wanted.length > MAX_LENGTH) return []
  const found = groups.flatMap((names, order) => {
    const [best] = names
      .map(name => ({ name, order, far: farness(wanted, lettersOf(name)) }))
      .sort((a, b) => a.far - b.far)
    return best.far === Number.POSITIVE_INFINITY ? [] : [best]
  })
  // Models differ by a digit: beside one that continues what was typed, one with another digit would mislead.
  const nearest = Math.floor(Math.min(...found.map(({ far }) => far)))
  return found
    .filter(({ far }) => Math.floor(far) === nearest)
    .sort((a, b) => a.far - b.far || a.order - b.order)
    .slice(0, MOST_NEAR)
    .map(({ name }) => name)
}

/** '; did you mean a, b or c?'; nothing without names. */
export function didYouMean(names: readonly string[]): string {
  const [last, ...others] = [...names].reverse()
  if (last === undefined) return ''
  return `; did you mean ${others.length === 0 ? last : `${others.reverse().join(', ')} or ${last}`}?`
}

/** 'gpt oss', 'gpt-oss' and 'GPT_OSS' are the same. */
function lettersOf(name: string): string {
  return name.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '')
}

/** Infinity: another name. */
function farness(wanted: string, name: string): number {
  if (name === wanted) return 0
  const isLong = wanted.length >= MIN_LETTERS
  const extra = name.length / (MAX_LENGTH * 10) // of two such names the shorter one is nearer
  if (isLong && name.startsWith(wanted)) return 1 + extra
  const most = Math.max(1, Math.floor(wanted.length / 4))
  if (Math.abs(name.length - wanted.length) <= most && isLong) {
    const edits = distance(wanted, name)
    if (edits <= most) return 1 + edits
  }
  return isLong && name.includes(wanted) ? 2 + most + extra : Number.POSITIVE_INFINITY
}

/** Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment). */
function distance(a: string, b: string): number {
  let [before, last] = [[] as number[], Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1
      row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + cost)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (isSwap) row[j] = Math.min(row[j], before[j - 2] + 1)
    }
    ;[before, last] = [last, row]
  }
  return last[b.length]
}
