// Decimal numbers between two bounds, digit by digit. Works on whole numbers; decimals are whole numbers of a smaller unit
// with the point put back in. Numbers are written without exponents, so that what is matched is what is meant.
import type { GrammarBuilder, Node } from '../source/grammarBuilder.js'

/** Numbers n / 10^decimals for whole n in low..high, written with exactly that many decimals; -0 is never written. */
export function digitRange(builder: GrammarBuilder, low: bigint, high: bigint, decimals: number): Node {
  const digits = new DigitGrammar(builder, decimals)
  const options: Node[] = []
  if (low <= high && high >= 0n) options.push(digits.nonNegative(low > 0n ? low : 0n, high))
  if (low <= high && low < 0n) {
    options.push(builder.sequence([builder.literal('-'), digits.nonNegative(high < 0n ? -high : 1n, -low)]))
  }
  return builder.choice(options)
}

class DigitGrammar {
  private readonly point: Node

  constructor(
    private readonly builder: GrammarBuilder,
    private readonly decimals: number,
  ) {
    this.point = decimals === 0 ? builder.empty : builder.literal('.')
  }

  /** Zeros come first only where the digits before the point would be none. */
  nonNegative(low: bigint, high: bigint): Node {
    const shortest = this.decimals + 1
    const options: Node[] = []
    for (let length = shortest; length <= Math.max(high.toString().length, shortest); length++) {
      const smallest = length === shortest ? 0n : 10n ** BigInt(length - 1)
      const largest = 10n ** BigInt(length) - 1n
      const from = low > smallest ? low : smallest
      const to = high < largest ? high : largest
      if (from > to) continue
      options.push(this.between(from.toString().padStart(length, '0'), to.toString().padStart(length, '0')))
    }
    return this.builder.choice(options)
  }

  /** Digits between two of the same length. */
  private between(low: string, high: string): Node {
    const { builder } = this
    const rest = low.length - 1
    if (rest < 0) return builder.empty
    const zeros = '0'.repeat(rest)
    const nines = '9'.repeat(rest)
    if (low === `0${zeros}` && high === `9${nines}`) return this.any(low.length)
    if (low[0] === high[0]) return this.headed(low[0], low[0], rest, this.between(low.slice(1), high.slice(1)))
    // A digit whose tails are unbounded joins those between; the others get their own bounded tails.
    const openLow = low.slice(1) === zeros
    const openHigh = high.slice(1) === nines
    const from = Number(low[0]) + (openLow ? 0 : 1)
    const to = Number(high[0]) - (openHigh ? 0 : 1)
    const options: Node[] = []
    if (!openLow) options.push(this.headed(low[0], low[0], rest, this.between(low.slice(1), nines)))
    if (from <= to) options.push(this.headed(String(from), String(to), rest, this.any(rest)))
    if (!openHigh) options.push(this.headed(high[0], high[0], rest, this.between(zeros, high.slice(1))))
    return builder.choice(options)
  }

  /** A digit and what follows it, of which `rest` digits are left. */
  private headed(first: string, last: string, rest: number, tail: Node): Node {
    const { builder } = this
    const digit = builder.charClass([[first.charCodeAt(0), last.charCodeAt(0)]])
    return builder.sequence([digit, rest === this.decimals ? this.point : builder.empty, tail])
  }

  private any(count: number): Node {
    const { builder, decimals } = this
    const digit = builder.charClass([[0x30, 0x39]])
    if (count <= decimals) return builder.repeat(digit, count, count)
    const whole = builder.repeat(digit, count - decimals, count - decimals)
    return builder.sequence([whole, this.point, builder.repeat(digit, decimals, decimals)])
  }
}
