// `oneOf` means exactly one: a grammar can promise that only where no value can match two of the options. They are told apart by
// fixed values, by types, or by a property that every one requires with other values (a discriminator).
import { UnsupportedSchemaError } from '../../base/errors.js'
import type { Conjunction } from './conjunction.js'
import { commonTypes, hasType, impliedTypes, isObject, type JsonType, namedTypes } from './schemaKeywords.js'
import type { WorkBudget } from './workBudget.js'

/** What is known of the values that an option allows. */
interface Traits {
  readonly values: ReadonlySet<string> | null // as canonical JSON; null: not a fixed set
  readonly types: readonly JsonType[] // that may match
  readonly written: readonly JsonType[] // that the grammar writes, maybe less
  readonly discriminators: ReadonlyMap<string, ReadonlySet<string>> // required properties with fixed values
}

const JSON_TYPES: readonly JsonType[] = ['null', 'boolean', 'string', 'integer', 'number', 'array', 'object']

export function requireDisjoint(options: readonly Conjunction[], path: string, work: WorkBudget): void {
  const traits = options.map(option => traitsOf(option, work))
  const overlap = (a: number, b: number) =>
    new UnsupportedSchemaError('oneOf', path, `options ${a} and ${b} may both match a value; use anyOf`)
  // The usual cases in one pass: constants, and objects with a discriminator that all have.
  if (traits.every(({ values }) => values !== null)) {
    const twice = clash(
      traits.map(({ values }) => values!),
      work,
      path,
    )
    if (twice === null) return
    throw overlap(...twice)
  }
  if (traits.every(({ written }) => written.every(type => type === 'object'))) {
    const names = [...traits[0].discriminators.keys()]
    for (const name of names.filter(name => traits.every(({ discriminators }) => discriminators.has(name)))) {
      const sets = traits.map(({ discriminators }) => discriminators.get(name)!)
      if (clash(sets, work, path) === null) return
    }
  }
  for (let a = 0; a < traits.length; a++) {
    for (let b = a + 1; b < traits.length; b++) {
      work.spend(1, path)
      if (!areDisjoint(traits[a], traits[b])) throw overlap(a, b)
    }
  }
}

/** Two sets that share a value, or null. */
function clash(sets: readonly ReadonlySet<string>[], work: WorkBudget, path: string): [number, number] | null {
  const owner = new Map<string, number>()
  for (const [index, set] of sets.entries()) {
    work.spend(set.size, path)
    for (const value of set) {
      const before = owner.get(value) ?? index
      if (before !== index) return [before, index]
      owner.set(value, index)
    }
  }
  return null
}

/** Whether nothing that is written for one of them matches the other. */
function areDisjoint(a: Traits, b: Traits): boolean {
  if (a.values !== null && b.values !== null) return haveNothingInCommon(a.values, b.values)
  const common = [...commonTypes(a.written, b.types), ...commonTypes(b.written, a.types)]
  if (common.length === 0) return true
  if (common.some(type => type !== 'object')) return false
  for (const [name, values] of a.discriminators) {
    const others = b.discriminators.get(name)
    if (others !== undefined && haveNothingInCommon(values, others)) return true
  }
  return false
}

function haveNothingInCommon(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  for (const value of a) if (b.has(value)) return false
  return true
}

function traitsOf({ members, choices, path }: Conjunction, work: WorkBudget): Traits {
  let values = null as Set<string> | null
  let types: readonly JsonType[] | null = null
  const discriminators = new Map<string, ReadonlySet<string>>()
  for (const { schema } of members) {
    const own = fixedValues(schema)
    if (own !== null) {
      work.spend(own.length, path)
      const texts = own.map(canonical)
      values = new Set(texts.filter(text => values === null || values.has(text)))
      types = narrowed(types, typesOf(own))
    }
    const named = namedTypes(schema)
    if (named !== null) types = narrowed(types, named)
    for (const name of schema.required ?? []) {
      work.spend(1, path)
      const property = schema.properties !== undefined && Object.hasOwn(schema.properties, name)
      const fixed = property ? fixedValues(schema.properties![name]) : null
      if (fixed !== null) discriminators.set(name, new Set(fixed.map(canonical)))
    }
  }
  // Where no type is named, values of all types match, but those that the keywords speak of are written.
  const implied = members.flatMap(member => impliedTypes(member.schema))
  const written = types ?? (choices.length === 0 && implied.length > 0 ? implied : JSON_TYPES)
  return { values, types: types ?? JSON_TYPES, written, discriminators }
}

function narrowed(types: readonly JsonType[] | null, more: readonly JsonType[]): readonly JsonType[] {
  return types === null ? more : commonTypes(types, more)
}

function typesOf(values: readonly unknown[]): JsonType[] {
  return [...new Set(values.map(value => JSON_TYPES.find(type => hasType(value, type))!))]
}

/** The values that a schema names one by one; null where it does not. */
export function fixedValues(schema: unknown): readonly unknown[] | null {
  if (!isObject(schema)) return null
  if ('const' in schema) return [schema.const]
  return Array.isArray(schema.enum) ? schema.enum : null
}

/** The same for values that are equal: the order of an object's members does not count. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    isObject(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner,
  )
}
