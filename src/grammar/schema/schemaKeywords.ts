// The keywords of JSON schemas: which there are, what each may be, which type of value each speaks of. A schema is checked
// against this before anything looks at it, so that nothing later meets a list where it wants a number. Keywords that
// cannot be guaranteed are refused by name, annotations are passed over.
import { UnsupportedSchemaError } from '../../base/errors.js'
import { MAX_REPEAT } from '../automaton/program.js'

export type JsonType = 'object' | 'array' | 'string' | 'number' | 'integer' | 'boolean' | 'null'
export type SchemaObject = Readonly<Record<string, unknown>>

/** A schema after it was checked. */
export interface CheckedSchema {
  readonly $ref?: string
  readonly allOf?: readonly unknown[]
  readonly anyOf?: readonly unknown[]
  readonly oneOf?: readonly unknown[]
  readonly enum?: readonly unknown[]
  readonly const?: unknown
  readonly type?: JsonType | readonly JsonType[]
  readonly nullable?: boolean
  readonly properties?: SchemaObject
  readonly required?: readonly string[]
  readonly additionalProperties?: unknown
  readonly patternProperties?: SchemaObject
  readonly propertyNames?: unknown
  readonly minProperties?: number
  readonly maxProperties?: number
  readonly items?: unknown
  readonly prefixItems?: readonly unknown[]
  readonly minItems?: number
  readonly maxItems?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly pattern?: string
  readonly format?: string
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
  readonly exclusiveMaximum?: number
  readonly multipleOf?: number
}

export type Keyword = keyof CheckedSchema

const TYPES: readonly string[] = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']

const ANNOTATIONS = new Set([
  'title',
  'description',
  'default',
  'examples',
  'example',
  '$schema',
  '$id',
  'id',
  '$comment',
  '$anchor',
  'deprecated',
  'readOnly',
  'writeOnly',
  '$defs',
  'definitions',
  'discriminator',
  'contentMediaType',
  'contentEncoding',
  'strict',
  'name',
])

/** What is wrong with a value, or null. */
type Check = (value: unknown) => string | null

const want =
  (holds: (value: unknown) => boolean, what: string): Check =>
  value =>
    holds(value) ? null : `is not ${what}`
const isText = (value: unknown) => typeof value === 'string'
const isCount = (value: unknown) => Number.isInteger(value) && (value as number) >= 0

const number = want(value => typeof value === 'number' && Number.isFinite(value), 'a number')
const text = want(isText, 'a string')
const count: Check = value => {
  if (!isCount(value)) return 'is not a whole number'
  return (value as number) > MAX_REPEAT ? `${value} is more than ${MAX_REPEAT}` : null
}
const schemas = want(value => Array.isArray(value) && value.length > 0, 'a list of schemas')
const schema = want(value => typeof value === 'boolean' || isObject(value), 'a schema')
const object = want(isObject, 'an object')
const type: Check = value => {
  const wrong = (Array.isArray(value) ? value : [value]).find(name => !TYPES.includes(name as string))
  return wrong === undefined ? null : `${shown(wrong)} is not a JSON type`
}

const CHECKS: Readonly<Record<Keyword, Check>> = {
  $ref: text,
  allOf: want(Array.isArray, 'a list of schemas'),
  anyOf: schemas,
  oneOf: schemas,
  enum: want(Array.isArray, 'an array'),
  const: () => null,
  type,
  nullable: want(value => typeof value === 'boolean', 'true or false'),
  properties: object,
  required: want(value => Array.isArray(value) && value.every(isText), 'a list of names'),
  additionalProperties: schema,
  patternProperties: object,
  propertyNames: schema,
  minProperties: count,
  maxProperties: count,
  items: value => (Array.isArray(value) ? 'is a list; use prefixItems' : schema(value)),
  prefixItems: want(Array.isArray, 'a list of schemas'),
  minItems: count,
  maxItems: count,
  minLength: count,
  maxLength: count,
  pattern: text,
  format: text,
  minimum: number,
  maximum: number,
  exclusiveMinimum: number,
  exclusiveMaximum: number,
  multipleOf: want(value => typeof value === 'number' && value > 0, 'a number above 0'),
}

const OF_OBJECTS: readonly Keyword[] = [
  'properties',
  'required',
  'additionalProperties',
  'patternProperties',
  'propertyNames',
  'minProperties',
  'maxProperties',
]
const OF_ARRAYS: readonly Keyword[] = ['items', 'prefixItems', 'minItems', 'maxItems']
const OF_STRINGS: readonly Keyword[] = ['minLength', 'maxLength', 'pattern', 'format']
const OF_NUMBERS: readonly Keyword[] = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf']
const BY_TYPE: readonly (readonly [JsonType, readonly Keyword[]])[] = [
  ['object', OF_OBJECTS],
  ['array', OF_ARRAYS],
  ['string', OF_STRINGS],
  ['number', OF_NUMBERS],
]

/** Keywords about the value itself. The others join schemas. */
export const VALUE_KEYWORDS: readonly Keyword[] = ['type', 'enum', 'const', ...BY_TYPE.flatMap(([, list]) => list)]

export function checkSchema(value: SchemaObject, path: string): CheckedSchema {
  for (const keyword of Object.keys(value)) {
    if (ANNOTATIONS.has(keyword) || keyword.startsWith('x-')) continue
    if (!Object.hasOwn(CHECKS, keyword)) throw new UnsupportedSchemaError(keyword.slice(0, 80), path)
    const wrong = CHECKS[keyword as Keyword](value[keyword])
    if (wrong !== null) throw new UnsupportedSchemaError(keyword, path, wrong)
  }
  return value
}

/** The types whose keywords a schema has. */
export function impliedTypes(value: CheckedSchema): JsonType[] {
  return BY_TYPE.filter(([, keywords]) => keywords.some(keyword => keyword in value)).map(([name]) => name)
}

/** The types that a schema names; null where it names none. `nullable` adds one to those that are named. */
export function namedTypes({ type: named, nullable }: CheckedSchema): readonly JsonType[] | null {
  if (named === undefined) return null
  const types = typeof named === 'string' ? [named] : named
  return nullable === true && !types.includes('null') ? [...types, 'null'] : types
}

/** What both allow. An integer is a number. */
export function commonTypes(a: readonly JsonType[], b: readonly JsonType[]): JsonType[] {
  const out = a.filter(one => b.includes(one) || (one === 'integer' && b.includes('number')))
  if (a.includes('number') && b.includes('integer') && !out.includes('integer')) out.push('integer')
  return out
}

export function hasType(value: unknown, name: JsonType): boolean {
  if (name === 'null') return value === null
  if (name === 'array') return Array.isArray(value)
  if (name === 'object') return isObject(value)
  if (name === 'integer') return Number.isInteger(value)
  return typeof value === name
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** A value for a message: short. */
export function shown(value: unknown): string {
  const written = JSON.stringify(value) ?? String(value)
  return written.length > 80 ? `${written.slice(0, 80)}…` : written
}
