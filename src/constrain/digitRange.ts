// Grammars for decimal numbers between two bounds. Works on whole numbers; decimals are whole numbers of a smaller
// unit with the point put back in. Numbers are written without exponents, so that what is matched is what is meant.
// The result is deterministic (no two options begin alike): xgrammar 0.1.27 lets wrong numbers through otherwise.
import { type CharRange, charClass, choice, empty, type Node, sequence } from './grammarTree.js'

type Digits = readonly CharRange[] // one class per character

const code = (char: string): number => char.charCodeAt(0)
const between = (first: string, last: string): CharRange => [code(first), code(last)]

/** Digit strings of one length between two of that length, digit by digit from the left. */
function fixedLength(low: string, high: string): Digits[] {
  if (low.length === 0) return [[]]
  const rest = low.length - 1
  const zeros = '0'.repeat(rest)
  const nines = '9'.repeat(rest)
  const head = (first: string, tails: Digits[]): Digits[] => tails.map(tail => [between(first, first), ...tail])
  if (low[0] === high[0]) return head(low[0], fixedLength(low.slice(1), high.slice(1)))
  // A digit whose tails are unbounded joins those between; the others get their own bounded tails.
  const openLow = low.slice(1) === zeros
  const openHigh = high.slice(1) === nines
  const from = Number(low[0]) + (openLow ? 0 : 1)
  const to = Number(high[0]) - (openHigh ? 0 : 1)
  const out: Digits[] = []
  if (!openLow) out.push(...head(low[0], fixedLength(low.slice(1), nines)))
  if (from <= to)
    out.push([between(String(from), String(to)), ...Array.from({ length: rest }, () => between('0', '9'))])
  if (!openHigh) out.push(...head(high[0], fixedLength(zeros, high.slice(1))))
  return out
}

/** Non-negative whole numbers low..high with at least `minDigits` digits (zero-padded). */
function nonNegative(low: bigint, high: bigint, minDigits: number): Digits[] {
  const out: Digits[] = []
  for (let length = minDigits; length <= Math.max(high.toString().length, minDigits); length++) {
    const smallest = length === minDigits ? 0n : 10n ** BigInt(length - 1)
    const largest = 10n ** BigInt(length) - 1n
    const from = low > smallest ? low : smallest
    const to = high < largest ? high : largest
    if (from <= to) out.push(...fixedLength(from.toString().padStart(length, '0'), to.toString().padStart(length, '0')))
  }
  return out
}

/** Numbers n / 10^decimals for whole n in low..high, written with exactly that many decimals; -0 is never written. */
export function digitRange(low: bigint, high: bigint, decimals: number): Digits[] {
  if (low > high) return []
  const point = (digits: Digits): Digits =>
    decimals === 0
      ? digits
      : [...digits.slice(0, -decimals), between('.', '.'), ...digits.slice(digits.length - decimals)]
  const out: Digits[] = []
  if (high >= 0n) out.push(...nonNegative(low > 0n ? low : 0n, high, decimals + 1).map(point))
  if (low < 0n) {
    const below = nonNegative(high < 0n ? -high : 1n, -low, decimals + 1)
    out.push(...below.map(digits => [between('-', '-'), ...point(digits)]))
  }
  return out
}

/** The union of character sequences as a tree whose options never begin alike. */
export function deterministic(sequences: readonly Digits[]): Node {
  const known = new Map<string, Node>()
  const keyOf = (list: readonly Digits[]): string => list.map(digits => digits.flat().join(',')).join(';')
  const build = (list: readonly Digits[]): Node => {
    const key = keyOf(list)
    const before = known.get(key)
    if (before !== undefined) return before
    // Characters with the same continuations share an option.
    const groups = new Map<string, { chars: CharRange[]; tails: Digits[] }>()
    for (const char of '-.0123456789') {
      const tails = list
        .filter(digits => digits.length > 0 && inside(code(char), digits[0]))
        .map(digits => digits.slice(1))
      if (tails.length === 0) continue
      const unique = [...new Map(tails.map(tail => [keyOf([tail]), tail])).values()]
      const tailKey = `${unique.some(tail => tail.length === 0)}|${unique
        .map(tail => keyOf([tail]))
        .sort()
        .join(';')}`
      const group = groups.get(tailKey)
      if (group === undefined) groups.set(tailKey, { chars: [between(char, char)], tails: unique })
      else group.chars.push(between(char, char))
    }
    const options = [...groups.values()].map(({ chars, tails }) => sequence(charClass(...chars), build(tails)))
    const ends = list.some(digits => digits.length === 0)
    const node =
      options.length === 0
        ? ends
          ? empty
          : choice()
        : ends
          ? { kind: 'repeat' as const, item: choice(...options), min: 0, max: 1 }
          : choice(...options)
    known.set(key, node)
    return node
  }
  return build(sequences)
}

function inside(char: number, [first, last]: CharRange): boolean {
  return char >= first && char <= last
}
