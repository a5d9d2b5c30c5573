// Numbers of a JSON schema. Unbounded ones are as JSON writes them, kept to what a double holds; bounded ones are whole
// numbers and numbers of a fixed count of decimals between the bounds.
import type { GrammarBuilder, Node } from '../source/grammarBuilder.js'
import { digitRange } from './digitRange.js'

export interface NumberBounds {
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
  readonly exclusiveMaximum?: number
}

// As many digits as two doubles never share, before and after the point together.
const LIMIT = 10n ** 15n - 1n

/** Any JSON number that parses to a finite value without losing digits. */
export function anyNumber(builder: GrammarBuilder): Node {
  const digit = digits(builder, '0', '9')
  const fraction = builder.sequence([builder.literal('.'), digit, builder.repeat(digit, 0, 8)])
  const exponent = builder.sequence([
    builder.choice([builder.literal('E'), builder.literal('e')]),
    builder.optional(builder.choice([builder.literal('+'), builder.literal('-')])),
    builder.repeat(digit, 1, 2),
  ])
  return builder.sequence([anyInteger(builder), builder.optional(fraction), builder.optional(exponent)])
}

/** Integers that a double holds exactly. */
export function anyInteger(builder: GrammarBuilder): Node {
  const long = builder.sequence([digits(builder, '1', '9'), builder.repeat(digits(builder, '0', '9'), 0, 14)])
  return builder.sequence([builder.optional(builder.literal('-')), builder.choice([builder.literal('0'), long])])
}

function digits(builder: GrammarBuilder, first: string, last: string): Node {
  return builder.charClass([[first.charCodeAt(0), last.charCodeAt(0)]])
}

/** Numbers between the bounds: whole ones, and for `number` those with two to six decimals. */
export function boundedNumber(builder: GrammarBuilder, type: 'integer' | 'number', bounds: NumberBounds): Node {
  const decimals = type === 'integer' ? 0 : Math.max(2, ...Object.values(bounds).map(decimalPlaces))
  const whole = numberRange(builder, bounds, 0)
  return decimals === 0 ? whole : builder.choice([whole, numberRange(builder, bounds, decimals)])
}

/** Whole multiples of 10^-decimals inside the bounds. */
function numberRange(builder: GrammarBuilder, bounds: NumberBounds, decimals: number): Node {
  let low = -LIMIT
  let high = LIMIT
  const apply = (bound: number | undefined, lower: boolean, exclusive: boolean) => {
    if (bound === undefined) return
    const scaled = scaleDecimal(bound, decimals)
    let edge = lower ? scaled.ceil : scaled.floor
    if (exclusive && scaled.exact) edge += lower ? 1n : -1n
    if (lower && edge > low) low = edge
    if (!lower && edge < high) high = edge
  }
  apply(bounds.minimum, true, false)
  apply(bounds.exclusiveMinimum, true, true)
  apply(bounds.maximum, false, false)
  apply(bounds.exclusiveMaximum, false, true)
  return digitRange(builder, low, high, decimals)
}

/** A double times 10^decimals, rounded down and up exactly. */
function scaleDecimal(value: number, decimals: number): { floor: bigint; ceil: bigint; exact: boolean } {
  const [mantissa, exponent] = value.toExponential().split('e')
  const [whole, fraction = ''] = mantissa.replace('-', '').split('.')
  const shift = Number(exponent) - fraction.length + decimals
  const digitsOnly = BigInt(whole + fraction)
  const negative = value < 0
  let floor: bigint
  let exact = true
  if (shift >= 0) floor = digitsOnly * 10n ** BigInt(shift)
  else {
    const divisor = 10n ** BigInt(-shift)
    floor = digitsOnly / divisor
    exact = digitsOnly % divisor === 0n
  }
  if (exact) return { floor: negative ? -floor : floor, ceil: negative ? -floor : floor, exact }
  return negative ? { floor: -floor - 1n, ceil: -floor, exact } : { floor, ceil: floor + 1n, exact }
}

function decimalPlaces(value: number): number {
  const [mantissa, exponent] = value.toExponential().split('e')
  return Math.min(6, Math.max(0, (mantissa.split('.')[1]?.length ?? 0) - Number(exponent)))
}
