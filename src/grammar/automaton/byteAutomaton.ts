// Characters out of ranges of code points, as the bytes of their UTF-8 form. A state is a run of numbers: how many edges,
// then for each the first byte, the last byte, and the state that follows (or CHAR_END). Surrogates have no UTF-8 form
// and are left out, and no state leads to bytes that a decoder would refuse.

export type CharRange = readonly [first: number, last: number] // code points, inclusive

export const MAX_CODE = 0x10ffff
export const CHAR_END = -1

const SURROGATES: CharRange = [0xd800, 0xdfff]
const LENGTH_ENDS = [0x7f, 0x7ff, 0xffff, MAX_CODE] // the last code point of one, two, three, four bytes

type ByteRange = readonly [first: number, last: number]
interface Edge {
  readonly first: number
  readonly last: number
  readonly next: number
}

/** Puts the states for `ranges` into a list and gives the first one's place there; -1 where no character is left. */
export function addByteAutomaton(ranges: readonly CharRange[], addState: (state: readonly number[]) => number): number {
  const sequences = subtract(ranges, [SURROGATES]).flatMap(byteSequences)
  return sequences.length === 0 ? -1 : state(sequences, addState)
}

/** Sorted and joined. */
function normalized(ranges: readonly CharRange[]): CharRange[] {
  const out: [number, number][] = []
  for (const [first, last] of ranges.toSorted(([a], [b]) => a - b)) {
    const before = out.at(-1)
    if (before !== undefined && first <= before[1] + 1) before[1] = Math.max(before[1], last)
    else if (first <= last) out.push([first, last])
  }
  return out
}

/** What is in `ranges` and in none of `holes`, sorted. */
export function subtract(ranges: readonly CharRange[], holes: readonly CharRange[]): CharRange[] {
  const out: CharRange[] = []
  const gaps = normalized(holes)
  let at = 0
  for (const [first, last] of normalized(ranges)) {
    while (at < gaps.length && gaps[at][1] < first) at++
    let from = first
    for (let i = at; i < gaps.length && gaps[i][0] <= last; i++) {
      if (from < gaps[i][0]) out.push([from, gaps[i][0] - 1])
      from = gaps[i][1] + 1
    }
    if (from <= last) out.push([from, last])
  }
  return out
}

/** A range as sequences of byte ranges of which every combination is in the range. */
function byteSequences([first, last]: CharRange): ByteRange[][] {
  const out: ByteRange[][] = []
  let from = first
  for (const [extra, end] of LENGTH_ENDS.entries()) {
    if (from > last) break
    if (from > end) continue
    split(from, Math.min(last, end), extra, out)
    from = end + 1
  }
  return out
}

/** Cuts a range of characters with `extra` following bytes where a carry would mix them. */
function split(first: number, last: number, extra: number, out: ByteRange[][]): void {
  for (let i = 1; i <= extra; i++) {
    const mask = (1 << (6 * i)) - 1
    if ((first & ~mask) === (last & ~mask)) continue
    if ((first & mask) !== 0) {
      split(first, first | mask, extra, out)
      split((first | mask) + 1, last, extra, out)
      return
    }
    if ((last & mask) !== mask) {
      split(first, (last & ~mask) - 1, extra, out)
      split(last & ~mask, last, extra, out)
      return
    }
  }
  const low = utf8(first, extra)
  const high = utf8(last, extra)
  out.push(low.map((byte, i) => [byte, high[i]]))
}

function utf8(code: number, extra: number): number[] {
  if (extra === 0) return [code]
  const lead = (0xff << (7 - extra)) & 0xff
  const bytes = [lead | (code >> (6 * extra))]
  for (let i = extra - 1; i >= 0; i--) bytes.push(0x80 | ((code >> (6 * i)) & 0x3f))
  return bytes
}

/** Sequences are in order and do not overlap, so that those with the same first range stand together. */
function state(sequences: readonly (readonly ByteRange[])[], addState: (state: readonly number[]) => number): number {
  const edges: Edge[] = []
  for (let i = 0; i < sequences.length; ) {
    const [[first, last]] = sequences[i]
    const tails: (readonly ByteRange[])[] = []
    for (; i < sequences.length && sequences[i][0][0] === first && sequences[i][0][1] === last; i++) {
      tails.push(sequences[i].slice(1))
    }
    edges.push({ first, last, next: tails[0].length === 0 ? CHAR_END : state(tails, addState) })
  }
  return addState([edges.length, ...edges.flatMap(({ first, last, next }) => [first, last, next])])
}
