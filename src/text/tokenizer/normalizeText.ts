// Unicode normalization whose time grows with the text and nothing else. Engines sort the combining marks behind a letter
// by insertion: a hundred thousand marks in a row, which anybody can send, take them minutes. Here long runs are put into
// canonical order first, in n log n steps. Texts that differ in that order only have one and the same normal form, so
// the result is what `normalize` alone would give.

export type NormalForm = 'NFC' | 'NFD' | 'NFKC' | 'NFKD'

const LONG_RUN = 256 // code units: shorter runs are sorted as fast by the engine
const STEP = LONG_RUN / 2 // every long run has a mark at a multiple of this

export function normalizeText(text: string, form: NormalForm): string {
  let ordered = ''
  let done = 0
  for (let at = STEP; at < text.length; at += STEP) {
    if (!isMark(text, at)) continue
    let start = at
    let end = at + 1
    while (start > done && isMark(text, start - 1)) start--
    while (end < text.length && isMark(text, end)) end++
    if (end - start < LONG_RUN) continue
    ordered += text.slice(done, start) + canonicalOrder(text.slice(start, end))
    done = end
    at = end - (end % STEP)
  }
  return (ordered + text.slice(done)).normalize(form)
}

/** Whether the code unit is a combining mark, or half of one. */
function isMark(text: string, at: number): boolean {
  const code = text.charCodeAt(at)
  if (code < 0x300) return false
  const isSecondHalf = code >= 0xdc00 && code < 0xe000
  return /^\p{M}/u.test(isSecondHalf ? text.slice(at - 1, at + 1) : text.slice(at, at + 2))
}

/** Sorts the marks between starters by their combining class; marks of one class keep their order. */
function canonicalOrder(run: string): string {
  const whole: string[] = []
  let sortable: string[] = []
  const sort = () => {
    const ranks = classRanks(sortable)
    sortable.sort((a, b) => ranks.get(a)! - ranks.get(b)!)
    for (const mark of sortable) whole.push(mark)
    sortable = []
  }
  const parts = new Map<string, { text: string; isStarter: boolean }[]>()
  for (const mark of run) {
    let own = parts.get(mark)
    if (own === undefined) {
      own = Array.from(mark.normalize('NFD'), text => ({ text, isStarter: isStarter(text) }))
      parts.set(mark, own)
    }
    for (const { text, isStarter } of own) {
      if (!isStarter) sortable.push(text)
      else {
        sort()
        whole.push(text)
      }
    }
  }
  sort()
  return whole.join('')
}

/** Combining classes as numbers, found out by how the engine orders pairs: JavaScript does not tell them. */
function classRanks(marks: readonly string[]): Map<string, number> {
  const distinct = [...new Set(marks)].sort((a, b) => (isOutOfOrder(a, b) ? 1 : isOutOfOrder(b, a) ? -1 : 0))
  const ranks = new Map<string, number>()
  let rank = 0
  distinct.forEach((mark, i) => {
    if (i > 0 && isOutOfOrder(mark, distinct[i - 1])) rank++
    ranks.set(mark, rank)
  })
  return ranks
}

function isOutOfOrder(first: string, second: string): boolean {
  return (first + second).normalize('NFD') !== first + second
}

/** A starter never changes places: neither with a mark of the lowest class nor with one of the highest. */
function isStarter(mark: string): boolean {
  return !isOutOfOrder(mark, '\u0334') && !isOutOfOrder('\u0345', mark)
}
