// An option that counts something of which a model has no more than so many.
import { OptionError } from './errors.js'

/** `value`, or `max` where there is none. */
export function countWithin(option: string, value: number | undefined, max: number): number {
  if (value === undefined) return max
  if (!Number.isInteger(value) || value < 1 || value > max) {
    throw new OptionError(option, value, `an integer from 1 to ${max}`)
  }
  return value
}
