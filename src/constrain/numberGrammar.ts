// Numbers of a JSON schema. Unbounded ones are as JSON writes them, kept to what a double holds; bounded ones are whole
// numbers and numbers of a fixed count of decimals between the bounds.
import { UnsupportedSchemaError } from '../errors.js'
import { deterministic, digitRange } from './digitRange.js'
import { charClass, choice, literal, type Node, optional, sequence } from './grammarTree.js'

type Schema = Readonly<Record<string, unknown>>

export const NUMBER_BOUNDS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'] as const
const LIMIT = 10n ** 15n - 1n // what a double holds; all nines keep the grammar of an open bound small

/** Any JSON number that parses to a finite value without losing digits. */
function digits(first: number, last: number): Node {
  return charClass([0x30 + first, 0x30 + last])
}

export function anyNumber(): Node {
  const whole = anyInteger()
  const fraction = sequence(literal('.'), ...[digits(0, 9)], repeatDigits(8))
  const exponent = sequence(
    charClass([0x45, 0x45], [0x65, 0x65]),
    optional(charClass([0x2b, 0x2b], [0x2d, 0x2d])),
    digits(0, 9),
    optional(digits(0, 9)),
  )
  return sequence(whole, optional(fraction), optional(exponent))
}

/** Integers that a double holds exactly. */
export function anyInteger(): Node {
  return sequence(optional(literal('-')), choice(literal('0'), sequence(digits(1, 9), repeatDigits(14))))
}

function repeatDigits(most: number): Node {
  return { kind: 'repeat', item: digits(0, 9), min: 0, max: most }
}

/** Numbers between the bounds of `schema`: whole ones, and for `number` those with two to six decimals. */
export function boundedNumber(type: 'integer' | 'number', schema: Schema, path: string): Node {
  const bounds = NUMBER_BOUNDS.filter(keyword => schema[keyword] !== undefined)
  const decimals =
    type === 'integer' ? 0 : Math.max(2, ...bounds.map(keyword => decimalPlaces(schema[keyword], keyword, path)))
  const whole = numberRange(schema, 0, path)
  return deterministic(decimals > 0 ? [...whole, ...numberRange(schema, decimals, path)] : whole)
}

/** Whole multiples of 10^-decimals inside the bounds of `schema`. */
function numberRange(schema: Schema, decimals: number, path: string): ReturnType<typeof digitRange> {
  const unit = 10n ** BigInt(decimals)
  let low = -LIMIT * unit
  let high = LIMIT * unit
  const apply = (keyword: string, lower: boolean, exclusive: boolean) => {
    const bound = schema[keyword]
    if (bound === undefined) return
    if (typeof bound !== 'number' || !Number.isFinite(bound))
      throw new UnsupportedSchemaError(keyword, path, 'is not a number')
    const scaled = scaleDecimal(bound, decimals)
    let edge = lower ? scaled.ceil : scaled.floor
    if (exclusive && scaled.exact) edge += lower ? 1n : -1n
    if (lower && edge > low) low = edge
    if (!lower && edge < high) high = edge
  }
  apply('minimum', true, false)
  apply('exclusiveMinimum', true, true)
  apply('maximum', false, false)
  apply('exclusiveMaximum', false, true)
  const inside = (value: bigint) =>
    value > LIMIT * unit ? LIMIT * unit : value < -LIMIT * unit ? -LIMIT * unit : value
  return digitRange(inside(low), inside(high), decimals)
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

function decimalPlaces(value: unknown, keyword: string, path: string): number {
  if (typeof value !== 'number' || !Number.isFinite(value))
    throw new UnsupportedSchemaError(keyword, path, 'is not a number')
  const [mantissa, exponent] = value.toExponential().split('e')
  return Math.min(6, Math.max(0, (mantissa.split('.')[1]?.length ?? 0) - Number(exponent)))
}
