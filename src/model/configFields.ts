// Fields of a config.json, each checked to be what its reader asks for. What is refused is refused by name.
import { UnsupportedModelError } from '../base/errors.js'

export type Json = Readonly<Record<string, unknown>>

export const MAX_SIZE = 2 ** 31 - 1
export const MAX_LAYERS = 4096

export class ConfigFields {
  constructor(
    readonly json: Json,
    private readonly prefix = '',
  ) {}

  get(field: string): unknown {
    return this.json[field] ?? undefined
  }

  has(field: string): boolean {
    return this.get(field) !== undefined
  }

  /** An integer from 1 on. */
  size(field: string, max = MAX_SIZE): number {
    return this.integer(field, 1, max)
  }

  integer(field: string, min: number, max: number): number {
    const value = this.json[field]
    if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
      this.refuse(field, `an integer from ${min} to ${max}`)
    }
    return value as number
  }

  positive(field: string, fallback?: number): number {
    const value = this.get(field) ?? fallback
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0) this.refuse(field, 'a positive number')
    return value as number
  }

  boolean(field: string, fallback: boolean): boolean {
    const value = this.get(field) ?? fallback
    if (typeof value !== 'boolean') this.refuse(field, 'true or false')
    return value as boolean
  }

  /** An object, or null where there is none. */
  object(field: string): ConfigFields | null {
    const value = this.get(field)
    if (value === undefined) return null
    if (!isObject(value)) this.refuse(field, 'an object')
    return new ConfigFields(value as Json, `${this.prefix}${field}.`)
  }

  /** For settings that would change the math: absent or exactly this. */
  mustBe(field: string, want: unknown): void {
    if (this.has(field) && this.get(field) !== want) this.refuse(field, String(want))
  }

  mustBeEmpty(field: string): void {
    const value = this.get(field)
    if (value !== undefined && !(Array.isArray(value) && value.length === 0)) this.refuse(field, 'no entries')
  }

  refuse(field: string, want: string): never {
    throw new UnsupportedModelError(`${this.prefix}${field}`, this.json[field], want)
  }
}

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
