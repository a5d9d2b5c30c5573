// A JSON schema as a grammar, such that every text that the grammar matches is JSON and validates. The grammar may
// match less than the schema allows (no extra properties beside declared ones, no exponents where there are bounds):
// that is sound. What it could not guarantee is refused by name. JSON is written compactly, with at most one space
// after a colon or a comma.
import { UnsupportedSchemaError } from '../errors.js'
import {
  choice,
  empty,
  grammarText,
  hasLeftRecursion,
  literal,
  type Node,
  optional,
  productiveRules,
  repeat,
  rule,
  sequence,
} from './grammarTree.js'
import { anyInteger, anyNumber, boundedNumber, NUMBER_BOUNDS } from './numberGrammar.js'
import { anyJsonChar, regexGrammar } from './regexGrammar.js'

type Schema = Readonly<Record<string, unknown>>
type JsonType = 'object' | 'array' | 'string' | 'number' | 'integer' | 'boolean' | 'null'

const TYPES: readonly JsonType[] = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']
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
const BY_TYPE = new Map<JsonType, readonly string[]>([
  [
    'object',
    [
      'properties',
      'required',
      'additionalProperties',
      'patternProperties',
      'propertyNames',
      'minProperties',
      'maxProperties',
    ],
  ],
  ['array', ['items', 'prefixItems', 'minItems', 'maxItems']],
  ['string', ['minLength', 'maxLength', 'pattern', 'format']],
  ['number', ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf']],
])
const COMBINERS = ['$ref', 'anyOf', 'oneOf', 'allOf', 'enum', 'const', 'type', 'nullable']
const SUPPORTED = new Set([...COMBINERS, ...[...BY_TYPE.values()].flat()])

const MAX_DEPTH = 64
const MAX_COUNT = 4096 // of lengths and items
const FORMATS = new Map([
  ['date', '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$'],
  ['time', '^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$'],
  ['date-time', '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$'],
  ['uuid', '^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'],
  ['email', '^[a-z0-9]{1,32}([._-][a-z0-9]{1,32}){0,3}@[a-z0-9]{1,32}(\\.[a-z]{2,16}){1,3}$'],
  ['hostname', '^[a-z0-9]{1,32}(\\.[a-z0-9]{1,32}){0,4}$'],
  ['ipv4', '^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$'],
  ['uri', '^https?://[a-z0-9]{1,32}(\\.[a-z0-9]{1,32}){0,4}(/[A-Za-z0-9._-]{0,64}){0,8}$'],
])

export const JSON_RULE = 'json_value'

/** The rules of a schema's grammar, the value itself under `root`. Throws UnsupportedSchemaError for what it cannot guarantee. */
export function jsonSchemaRules(schema: unknown, root = 'root'): Map<string, Node> {
  const builder = new GrammarBuilder(schema, root)
  const rules = builder.build()
  if (!productiveRules(rules).has(root)) throw new UnsupportedSchemaError('schema', '#', 'no finite value can match')
  if (hasLeftRecursion(rules)) {
    throw new UnsupportedSchemaError('$ref', '#', 'a schema refers to itself without an object or array between')
  }
  return rules
}

export function jsonSchemaGrammar(schema: unknown): string {
  return grammarText(jsonSchemaRules(schema))
}

const comma = sequence(literal(','), optional(literal(' ')))
const colon = sequence(literal(':'), optional(literal(' ')))
const quoted = (content: Node): Node => sequence(literal('"'), content, literal('"'))

/** Any JSON at all, for schemas that say nothing. Nested as deep as the model likes. */
export function anyJsonRules(): Map<string, Node> {
  const value = rule(JSON_RULE)
  const member = sequence(quoted(repeat(anyJsonChar, 0, Number.POSITIVE_INFINITY)), colon, value)
  return new Map([
    [
      JSON_RULE,
      choice(
        rule(`${JSON_RULE}_object`),
        sequence(
          literal('['),
          optional(sequence(value, repeat(sequence(comma, value), 0, Number.POSITIVE_INFINITY))),
          literal(']'),
        ),
        quoted(repeat(anyJsonChar, 0, Number.POSITIVE_INFINITY)),
        anyNumber(),
        literal('true'),
        literal('false'),
        literal('null'),
      ),
    ],
    [
      `${JSON_RULE}_object`,
      sequence(
        literal('{'),
        optional(sequence(member, repeat(sequence(comma, member), 0, Number.POSITIVE_INFINITY))),
        literal('}'),
      ),
    ],
  ])
}

class GrammarBuilder {
  private readonly rules = new Map<string, Node>()
  private readonly names = new Map<unknown, string>() // schema object a $ref points at -> its rule

  constructor(
    private readonly document: unknown,
    private readonly root: string,
  ) {}

  build(): Map<string, Node> {
    this.names.set(this.document, this.root)
    this.rules.set(this.root, choice())
    this.rules.set(this.root, this.value(this.document, '#', 0))
    return this.rules
  }

  private value(schema: unknown, path: string, depth: number): Node {
    if (depth > MAX_DEPTH) throw new UnsupportedSchemaError('schema', path, `nested deeper than ${MAX_DEPTH}`)
    if (schema === true) return this.anyJson()
    if (schema === false) return choice()
    if (!isObject(schema)) throw new UnsupportedSchemaError('schema', path, 'is not an object or a boolean')
    for (const keyword of Object.keys(schema)) {
      if (!SUPPORTED.has(keyword) && !ANNOTATIONS.has(keyword) && !keyword.startsWith('x-'))
        throw new UnsupportedSchemaError(keyword, path)
    }
    if (schema.nullable === true)
      return choice(this.value(without(schema, 'nullable'), path, depth + 1), literal('null'))
    if ('$ref' in schema) return this.reference(schema, path, depth)
    if ('const' in schema) return this.constants([schema.const], schema, 'const', path)
    if ('enum' in schema) {
      if (!Array.isArray(schema.enum)) throw new UnsupportedSchemaError('enum', path, 'is not an array')
      return this.constants(schema.enum, schema, 'enum', path)
    }
    if ('allOf' in schema) return this.value(this.mergeAll(schema, path), path, depth + 1)
    for (const combiner of ['anyOf', 'oneOf'] as const) {
      if (combiner in schema) return this.alternatives(schema, combiner, path, depth)
    }
    const types = this.types(schema, path)
    if (types === null) return this.anyJson()
    return choice(...types.map(type => this.typed(type, schema, path, depth)))
  }

  private anyJson(): Node {
    for (const [name, body] of anyJsonRules()) this.rules.set(name, body)
    return rule(JSON_RULE)
  }

  /** The types a value may have: as said, or as its keywords imply; null where nothing is said. */
  private types(schema: Schema, path: string): JsonType[] | null {
    if (schema.type !== undefined) {
      const list = Array.isArray(schema.type) ? schema.type : [schema.type]
      for (const type of list) {
        if (!TYPES.includes(type as JsonType))
          throw new UnsupportedSchemaError('type', path, `${JSON.stringify(type)} is not a JSON type`)
      }
      return (list as JsonType[]).filter(type => !(type === 'integer' && list.includes('number')))
    }
    const implied = [...BY_TYPE]
      .filter(([, keywords]) => keywords.some(keyword => keyword in schema))
      .map(([type]) => type)
    return implied.length === 0 ? null : implied
  }

  private typed(type: JsonType, schema: Schema, path: string, depth: number): Node {
    switch (type) {
      case 'null':
        return literal('null')
      case 'boolean':
        return choice(literal('true'), literal('false'))
      case 'string':
        return quoted(this.stringContent(schema, path))
      case 'integer':
      case 'number':
        return this.number(type, schema, path)
      case 'array':
        return this.array(schema, path, depth)
      case 'object':
        return this.object(schema, path, depth)
    }
  }

  private reference(schema: Schema, path: string, depth: number): Node {
    const rest = Object.keys(schema).filter(keyword => keyword !== '$ref' && !ANNOTATIONS.has(keyword))
    if (rest.length > 0) return this.value({ allOf: [{ $ref: schema.$ref }, without(schema, '$ref')] }, path, depth + 1)
    const target = this.resolve(schema.$ref, path)
    const known = this.names.get(target)
    if (known !== undefined) return rule(known)
    const name = `${this.root}_ref_${this.names.size}`
    this.names.set(target, name)
    this.rules.set(name, choice())
    this.rules.set(name, this.value(target, String(schema.$ref), depth + 1))
    return rule(name)
  }

  private resolve(ref: unknown, path: string): unknown {
    if (typeof ref !== 'string' || !(ref === '#' || ref.startsWith('#/'))) {
      throw new UnsupportedSchemaError('$ref', path, `${JSON.stringify(ref)} is not inside this schema`)
    }
    let node: unknown = this.document
    for (const part of ref.split('/').slice(1)) {
      const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
      if (!isObject(node) && !Array.isArray(node)) node = undefined
      else node = Object.hasOwn(node, key) ? (node as Record<string, unknown>)[key] : undefined
      if (node === undefined) throw new UnsupportedSchemaError('$ref', path, `${ref} points nowhere`)
    }
    return node
  }

  private constants(values: readonly unknown[], schema: Schema, keyword: string, path: string): Node {
    const rest = Object.keys(schema).filter(key => key !== keyword && key !== 'type' && !ANNOTATIONS.has(key))
    if (rest.length > 0) throw new UnsupportedSchemaError(rest[0], path, `together with ${keyword}`)
    const types = this.types({ type: schema.type }, path)
    const fitting = types === null ? values : values.filter(value => types.some(type => hasType(value, type)))
    return choice(...fitting.map(value => literal(JSON.stringify(value))))
  }

  private alternatives(schema: Schema, combiner: 'anyOf' | 'oneOf', path: string, depth: number): Node {
    const options = schema[combiner]
    if (!Array.isArray(options) || options.length === 0)
      throw new UnsupportedSchemaError(combiner, path, 'is not a list of schemas')
    const rest = Object.fromEntries(Object.entries(schema).filter(([key]) => key !== combiner && !ANNOTATIONS.has(key)))
    const whole = options.map(option => (Object.keys(rest).length === 0 ? option : { allOf: [rest, option] }))
    if (combiner === 'oneOf' && options.length > 1) this.requireDisjoint(whole, path)
    return choice(...whole.map((option, i) => this.value(option, `${path}/${combiner}/${i}`, depth + 1)))
  }

  /** oneOf means exactly one: sound only where no value can match two of its options. */
  private requireDisjoint(options: readonly unknown[], path: string): void {
    const flat = options.map((option, i) => this.flatten(option, `${path}/oneOf/${i}`, 0))
    for (let a = 0; a < flat.length; a++) {
      for (let b = a + 1; b < flat.length; b++) {
        if (!this.disjoint(flat[a], flat[b], path)) {
          throw new UnsupportedSchemaError('oneOf', path, `options ${a} and ${b} may both match a value; use anyOf`)
        }
      }
    }
  }

  private flatten(schema: unknown, path: string, depth: number): Schema {
    if (depth > MAX_DEPTH) throw new UnsupportedSchemaError('$ref', path, 'refers to itself')
    if (!isObject(schema)) return {}
    if ('$ref' in schema) return this.flatten(this.resolve(schema.$ref, path), path, depth + 1)
    return 'allOf' in schema ? this.mergeAll(schema, path) : schema
  }

  private disjoint(a: Schema, b: Schema, path: string): boolean {
    const valuesA = fixedValues(a)
    const valuesB = fixedValues(b)
    if (valuesA !== null && valuesB !== null) return valuesA.every(value => !valuesB.includes(value))
    const typesA = this.types(a, path)
    const typesB = this.types(b, path)
    if (typesA !== null && typesB !== null) {
      const shared = typesA.filter(type => typesB.some(other => other === type || (numeric(type) && numeric(other))))
      if (shared.length === 0) return true
      if (shared.some(type => type !== 'object')) return false
    }
    const propertiesA = isObject(a.properties) ? a.properties : {}
    const propertiesB = isObject(b.properties) ? b.properties : {}
    const required = (schema: Schema, name: string) => Array.isArray(schema.required) && schema.required.includes(name)
    return Object.keys(propertiesA).some(name => {
      if (!(name in propertiesB) || !required(a, name) || !required(b, name)) return false
      const left = fixedValues(propertiesA[name])
      const right = fixedValues(propertiesB[name])
      return left !== null && right !== null && left.every(value => !right.includes(value))
    })
  }

  /** allOf as one schema, where its members say different things or the same; refused where they pull at one keyword. */
  private mergeAll(schema: Schema, path: string): Schema {
    const members = schema.allOf
    if (!Array.isArray(members)) throw new UnsupportedSchemaError('allOf', path, 'is not a list of schemas')
    const merged: Record<string, unknown> = {}
    for (const member of [without(schema, 'allOf'), ...members]) {
      if (member === true) continue
      const flat = this.flatten(member, path, 0)
      for (const [keyword, value] of Object.entries(flat)) {
        if (ANNOTATIONS.has(keyword)) continue
        const before = merged[keyword]
        if (before === undefined || JSON.stringify(before) === JSON.stringify(value)) merged[keyword] = value
        else if (keyword === 'required')
          merged.required = [...new Set([...(before as unknown[]), ...(value as unknown[])])]
        else if (keyword === 'properties') merged.properties = this.mergeProperties(before, value, path)
        else if (
          keyword === 'minimum' ||
          keyword === 'minLength' ||
          keyword === 'minItems' ||
          keyword === 'exclusiveMinimum'
        )
          merged[keyword] = Math.max(before as number, value as number)
        else if (
          keyword === 'maximum' ||
          keyword === 'maxLength' ||
          keyword === 'maxItems' ||
          keyword === 'exclusiveMaximum'
        )
          merged[keyword] = Math.min(before as number, value as number)
        else throw new UnsupportedSchemaError('allOf', path, `its members disagree on ${keyword}`)
      }
    }
    return merged
  }

  private mergeProperties(a: unknown, b: unknown, path: string): Schema {
    if (!isObject(a) || !isObject(b)) throw new UnsupportedSchemaError('properties', path, 'is not an object')
    const merged = new Map<string, unknown>(Object.entries(a))
    for (const [name, schema] of Object.entries(b)) {
      const before = merged.get(name)
      merged.set(name, before === undefined ? schema : { allOf: [before, schema] })
    }
    return Object.fromEntries(merged)
  }

  private stringContent(schema: Schema, path: string): Node {
    const min = count(schema, 'minLength', path) ?? 0
    const max = count(schema, 'maxLength', path) ?? Number.POSITIVE_INFINITY
    const bounded = 'minLength' in schema || 'maxLength' in schema
    if (schema.pattern !== undefined) {
      if (typeof schema.pattern !== 'string') throw new UnsupportedSchemaError('pattern', path, 'is not a string')
      if (bounded) throw new UnsupportedSchemaError('pattern', path, 'together with minLength or maxLength')
      if (schema.format !== undefined) throw new UnsupportedSchemaError('pattern', path, 'together with format')
      return regexGrammar(schema.pattern, path)
    }
    if (schema.format !== undefined) {
      const pattern = FORMATS.get(String(schema.format))
      if (pattern === undefined)
        throw new UnsupportedSchemaError(
          'format',
          path,
          `${JSON.stringify(schema.format)} (there are: ${[...FORMATS.keys()].join(', ')})`,
        )
      if (bounded) throw new UnsupportedSchemaError('format', path, 'together with minLength or maxLength')
      return regexGrammar(pattern, path)
    }
    return min > max ? choice() : repeat(anyJsonChar, min, max)
  }

  private number(type: 'integer' | 'number', schema: Schema, path: string): Node {
    if (schema.multipleOf !== undefined && !(type === 'integer' && schema.multipleOf === 1))
      throw new UnsupportedSchemaError('multipleOf', path)
    if (NUMBER_BOUNDS.every(keyword => schema[keyword] === undefined))
      return type === 'integer' ? anyInteger() : anyNumber()
    return boundedNumber(type, schema, path)
  }

  private array(schema: Schema, path: string, depth: number): Node {
    const min = count(schema, 'minItems', path) ?? 0
    const max = count(schema, 'maxItems', path) ?? Number.POSITIVE_INFINITY
    if (min > max) return choice()
    const prefix = schema.prefixItems ?? []
    if (!Array.isArray(prefix)) throw new UnsupportedSchemaError('prefixItems', path, 'is not a list of schemas')
    if (Array.isArray(schema.items)) throw new UnsupportedSchemaError('items', path, 'is a list; use prefixItems')
    const heads = prefix.map((item, i) => this.value(item, `${path}/prefixItems/${i}`, depth + 1))
    const tail = schema.items === false ? null : this.value(schema.items ?? true, `${path}/items`, depth + 1)
    // How many items: every prefix of the heads that is long enough, or all heads and some of the tail.
    const lengths: Node[] = []
    for (let n = min; n < heads.length && n <= max; n++) lengths.push(joined(heads.slice(0, n)))
    if (max >= heads.length) {
      const least = Math.max(0, min - heads.length)
      const most = tail === null ? 0 : max - heads.length
      if (least <= most) lengths.push(withTail(heads, tail, least, most))
    }
    return sequence(literal('['), choice(...lengths), literal(']'))
  }

  private object(schema: Schema, path: string, depth: number): Node {
    const properties = schema.properties ?? {}
    if (!isObject(properties)) throw new UnsupportedSchemaError('properties', path, 'is not an object')
    const required = schema.required ?? []
    if (!Array.isArray(required)) throw new UnsupportedSchemaError('required', path, 'is not a list of names')
    const extra = schema.additionalProperties ?? true
    const names = [...new Set([...Object.keys(properties), ...required.map(String)])]
    if (names.length === 0) return this.freeObject(schema, extra, path, depth)
    for (const keyword of ['patternProperties', 'propertyNames'] as const) {
      if (schema[keyword] !== undefined) throw new UnsupportedSchemaError(keyword, path, 'together with properties')
    }
    const members = names.map(name => {
      const own = Object.hasOwn(properties, name) ? properties[name] : extra
      const body = sequence(
        literal(JSON.stringify(name)),
        colon,
        this.value(own, `${path}/properties/${name}`, depth + 1),
      )
      return { body, required: required.includes(name) }
    })
    const min = count(schema, 'minProperties', path) ?? 0
    const max = count(schema, 'maxProperties', path) ?? Number.POSITIVE_INFINITY
    const needed = members.filter(member => member.required).length
    if (min > needed || max < members.length) {
      // Counting optional members would need a rule per count: demand the first optional ones, forbid the last ones.
      const optionalMembers = members.filter(member => !member.required)
      for (let i = 0; i < min - needed; i++) {
        if (optionalMembers[i] === undefined) return choice()
        optionalMembers[i].required = true
      }
      while (members.length > max) {
        const last = members.findLastIndex(member => !member.required)
        if (last < 0) return choice()
        members.splice(last, 1)
      }
    }
    return sequence(literal('{'), this.members(members, path), literal('}'))
  }

  /** Members in their order; optional ones may be left out; commas only between. One rule per position and state. */
  private members(members: readonly { body: Node; required: boolean }[], path: string): Node {
    const base = `${this.root}_obj_${this.rules.size}_${path.length}`
    let first: Node = empty // what may follow while nothing was written yet
    let next: Node = empty // … after a member was written
    for (let i = members.length - 1; i >= 0; i--) {
      const { body, required } = members[i]
      const writeFirst = sequence(body, next)
      const writeNext = sequence(comma, body, next)
      const firstName = `${base}_${i}_first`
      const nextName = `${base}_${i}_next`
      this.rules.set(firstName, required ? writeFirst : choice(writeFirst, first))
      this.rules.set(nextName, required ? writeNext : choice(writeNext, next))
      first = rule(firstName)
      next = rule(nextName)
    }
    return first
  }

  /** No declared names: a map. Keys may repeat (the last one counts), so a least number of them cannot be promised past 1. */
  private freeObject(schema: Schema, extra: unknown, path: string, depth: number): Node {
    const min = count(schema, 'minProperties', path) ?? 0
    const max = count(schema, 'maxProperties', path) ?? Number.POSITIVE_INFINITY
    if (min > 1) throw new UnsupportedSchemaError('minProperties', path, 'more than 1 without declared properties')
    if (max < min) return choice()
    let key: Node = repeat(anyJsonChar, 0, Number.POSITIVE_INFINITY)
    let valueSchema = extra
    if (schema.patternProperties !== undefined) {
      const patterns = isObject(schema.patternProperties) ? Object.entries(schema.patternProperties) : []
      if (patterns.length !== 1 || schema.propertyNames !== undefined)
        throw new UnsupportedSchemaError('patternProperties', path, 'other than one pattern alone')
      key = regexGrammar(patterns[0][0], path)
      valueSchema = patterns[0][1]
    }
    if (schema.propertyNames !== undefined) {
      const names = this.flatten(schema.propertyNames, path, 0)
      const values = fixedValues(names)
      key =
        values === null
          ? this.stringContent(names, `${path}/propertyNames`)
          : choice(...values.map(value => literal(value.slice(1, -1))))
    }
    const none = sequence(literal('{'), literal('}'))
    if (valueSchema === false) return min === 0 ? none : choice()
    const member = sequence(quoted(key), colon, this.value(valueSchema, `${path}/additionalProperties`, depth + 1))
    const some = sequence(literal('{'), member, repeat(sequence(comma, member), 0, max - 1), literal('}'))
    return max === 0 ? none : min === 0 ? choice(some, none) : some
  }
}

function joined(items: readonly Node[]): Node {
  return items.length === 0 ? empty : sequence(...items.flatMap((item, i) => (i === 0 ? [item] : [comma, item])))
}

function withTail(heads: readonly Node[], tail: Node | null, least: number, most: number): Node {
  if (tail === null || most === 0) return joined(heads)
  if (heads.length > 0) return sequence(joined(heads), repeat(sequence(comma, tail), least, most))
  const some = sequence(tail, repeat(sequence(comma, tail), Math.max(0, least - 1), most - 1))
  return least === 0 ? optional(some) : some
}

function count(schema: Schema, keyword: string, path: string): number | undefined {
  const value = schema[keyword]
  if (value === undefined) return undefined
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0)
    throw new UnsupportedSchemaError(keyword, path, 'is not a whole number')
  if (value > MAX_COUNT) throw new UnsupportedSchemaError(keyword, path, `${value} is more than ${MAX_COUNT}`)
  return value
}

function fixedValues(schema: unknown): string[] | null {
  if (!isObject(schema)) return null
  if ('const' in schema) return [JSON.stringify(schema.const)]
  return Array.isArray(schema.enum) ? schema.enum.map(value => JSON.stringify(value)) : null
}

function hasType(value: unknown, type: JsonType): boolean {
  if (type === 'null') return value === null
  if (type === 'array') return Array.isArray(value)
  if (type === 'object') return isObject(value)
  if (type === 'integer') return Number.isInteger(value)
  return typeof value === type
}

const numeric = (type: JsonType) => type === 'number' || type === 'integer'

function without(schema: Schema, keyword: string): Schema {
  const { [keyword]: _, ...rest } = schema
  return rest
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
