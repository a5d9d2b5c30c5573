// Checked option values for commander: a bad one ends with exit code 2 and a line that says what is wanted.
import { type Command, InvalidArgumentError } from 'commander'
import { MoefluxError } from '../../base/errors.js'
import { parseByteSize, parseDuration } from '../../base/quantities.js'

const INTEGER = /^[+-]?\d+$/
const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i

export function integerOption(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return text => {
    const value = INTEGER.test(text) ? Number(text) : Number.NaN
    if (!(value >= min && value <= max)) {
      throw new InvalidArgumentError(
        `Want a whole number ${max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`}.`,
      )
    }
    return value
  }
}

export function numberOption(min: number, max: number): (text: string) => number {
  return text => {
    const value = DECIMAL.test(text) ? Number(text) : Number.NaN
    if (!(value >= min && value <= max)) throw new InvalidArgumentError(`Want a number from ${min} to ${max}.`)
    return value
  }
}

export function byteSizeOption(text: string): number {
  try {
    return parseByteSize(text, 'size')
  } catch (error) {
    if (error instanceof MoefluxError) throw new InvalidArgumentError(`Want a size like 6GB, 512MiB or 1000000.`)
    throw error
  }
}

/** For speeds and limits, which mean nothing at zero. */
export function positiveByteSizeOption(text: string): number {
  const bytes = byteSizeOption(text)
  if (bytes === 0) throw new InvalidArgumentError('Want a size above zero, like 6GB, 512MiB or 1000000.')
  return bytes
}

/** Milliseconds of '200ms', '5s', '10m', '1h30m'; a number alone is seconds. */
export function durationOption(text: string): number {
  const ms = parseDuration(text)
  if (ms === null) throw new InvalidArgumentError('Want a time like 200ms, 5s or 1h30m.')
  return ms
}

/** A size, or a share of something. */
export type SizeOrShare = { readonly bytes: number } | { readonly share: number }

export function sizeOrShareOption(text: string): SizeOrShare {
  const percent = /^(\d+(?:\.\d+)?)%$/.exec(text.trim())
  if (percent === null) return { bytes: byteSizeOption(text) }
  const share = Number(percent[1]) / 100
  if (share > 1) throw new InvalidArgumentError('Want at most 100%.')
  return { share }
}

/** Several values, separated by commas. */
export function listOption<T>(each: (text: string) => T): (text: string) => T[] {
  return text => text.split(',').map(each)
}

/** For options that may be given several times. */
export function collectOption(text: string, earlier: readonly string[] = []): string[] {
  return [...earlier, text]
}

/** Examples under a command's help; each is a command line and, where it needs one, a word on it. */
export function addExamples(
  command: Command,
  examples: readonly (string | readonly [line: string, note: string])[],
): void {
  const lines = examples.map(example =>
    typeof example === 'string' ? `  $ ${example}` : `  $ ${example[0]}\n      ${example[1]}`,
  )
  command.addHelpText('after', `\nExamples:\n${lines.join('\n')}`)
}
