// Metadata of a GGUF file by key, each value checked to be of the kind that its reader asks for.
import { FormatError } from '../../base/errors.js'
import { type GgufValue, show } from './ggufHeader.js'

export class GgufFields {
  constructor(
    private readonly metadata: ReadonlyMap<string, GgufValue>,
    readonly file: string,
  ) {}

  get(key: string): GgufValue | undefined {
    return this.metadata.get(key)
  }

  number(key: string): number {
    return this.optionalNumber(key) ?? this.fail(key, 'a number')
  }

  optionalNumber(key: string): number | undefined {
    const value = this.metadata.get(key)
    if (value === undefined) return undefined
    return typeof value === 'number' ? value : this.fail(key, 'a number')
  }

  optionalString(key: string): string | undefined {
    const value = this.metadata.get(key)
    if (value === undefined) return undefined
    return typeof value === 'string' ? value : this.fail(key, 'text')
  }

  strings(key: string): readonly string[] {
    const value = this.metadata.get(key)
    const isGood = Array.isArray(value) && value.every(each => typeof each === 'string')
    return isGood ? (value as string[]) : this.fail(key, 'a list of texts')
  }

  numbers(key: string): readonly number[] {
    const value = this.metadata.get(key)
    const isGood = Array.isArray(value) && value.every(each => typeof each === 'number')
    return isGood ? (value as number[]) : this.fail(key, 'a list of numbers')
  }

  fail(key: string, want: string): never {
    throw new FormatError('BAD_METADATA', this.file, `${key} is ${show(this.metadata.get(key))}, want ${want}`)
  }
}
