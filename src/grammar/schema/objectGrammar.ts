// Objects and arrays of a schema. Declared members of an object come in their order, optional ones
// may be left out, and no others are written; an object without declared members is a map.
import { UnsupportedSchemaError } from '../../base/errors.js'
import type { Node } from '../source/grammarBuilder.js'
import { regexGrammar } from '../source/regexGrammar.js'
import { atLeast, atMost, type Conjunction, type Located, type Member } from './conjunction.js'
import { jsonChar } from './jsonText.js'
import type { SchemaNodes } from './schemaNodes.js'
import { stringContent } from './stringGrammar.js'

export interface Property {
  readonly name: string
  readonly demands: Conjunction
  readonly isRequired: boolean
}

export function objectGrammar(grammar: SchemaNodes, members: readonly Member[], path: string): Node {
  const { builder, json } = grammar
  const properties = declaredProperties(grammar, members, path)
  if (properties === null) return builder.never
  if (properties.length === 0 && !members.some(declaresNames)) return mapGrammar(grammar, members, path)

  // From the last to the first: `rest` writes one or more of the members from here on, `after` follows a member.
  let rest: Node = builder.never
  let after: Node = builder.empty
  let mayEnd = true
  for (const { name, demands, isRequired } of properties.toReversed()) {
    const value = grammar.value(demands)
    const written = builder.sequence([builder.literal(JSON.stringify(name)), json.colon, value, after])
    rest = isRequired ? written : builder.choice([written, rest])
    mayEnd &&= !isRequired
    const comma = builder.sequence([json.comma, rest])
    after = mayEnd ? builder.optional(comma) : comma
  }
  return json.bracketed('{', mayEnd ? builder.optional(rest) : rest, '}')
}

const declaresNames = ({ schema }: Member): boolean =>
  Object.keys(schema.properties ?? {}).length > 0 || (schema.required ?? []).length > 0

/** The members that may be written, in their order; null where no object can match. */
export function declaredProperties(grammar: SchemaNodes, members: readonly Member[], path: string): Property[] | null {
  const names = new Set<string>()
  const required = new Set<string>()
  for (const { schema, path: at } of members) {
    grammar.spend(Object.keys(schema.properties ?? {}).length + (schema.required?.length ?? 0), at)
    for (const name of Object.keys(schema.properties ?? {})) names.add(name)
    for (const name of schema.required ?? []) required.add(name)
  }
  for (const name of required) names.add(name)
  if (names.size === 0) return []
  for (const { schema, path: at } of members) {
    for (const keyword of ['patternProperties', 'propertyNames'] as const) {
      if (schema[keyword] !== undefined) throw new UnsupportedSchemaError(keyword, at, 'together with properties')
    }
  }
  const all = [...names].map(name => {
    const demands = grammar.demands(propertyParts(members, name, path))
    return { name, demands, isRequired: required.has(name) }
  })
  return withinCounts(
    all.filter(({ demands, isRequired }) => isRequired || !demands.isImpossible),
    members,
  )
}

/** Counting optional members would need a rule per count: the first ones are demanded, the last ones forbidden. */
function withinCounts(properties: readonly Property[], members: readonly Member[]): Property[] | null {
  const least = atLeast(members, 'minProperties')
  const most = atMost(members, 'maxProperties')
  const needed = properties.filter(({ isRequired }) => isRequired).length
  if (least > most || needed > most || properties.length < least) return null
  let missing = least - needed
  let spare = most - needed
  const kept: Property[] = []
  for (const property of properties) {
    if (property.isRequired) kept.push(property)
    else if (spare-- > 0) kept.push({ ...property, isRequired: missing-- > 0 })
  }
  return kept
}

/** What each schema says of a property: by its name, or as one that it does not name. */
function propertyParts(members: readonly Member[], name: string, path: string): Located[] {
  const parts: Located[] = []
  for (const { schema, path: at } of members) {
    const { properties, additionalProperties } = schema
    if (properties !== undefined && Object.hasOwn(properties, name)) {
      parts.push({ schema: properties[name], path: `${at}/properties/${pointerPart(name)}` })
    } else if (additionalProperties !== undefined) {
      parts.push({ schema: additionalProperties, path: `${at}/additionalProperties` })
    }
  }
  return parts.length > 0 ? parts : [{ schema: true, path: `${path}/properties/${pointerPart(name)}` }]
}

/** Keys may repeat (the last one counts), so that a least number of them cannot be promised past 1. */
function mapGrammar(grammar: SchemaNodes, members: readonly Member[], path: string): Node {
  const { builder, json } = grammar
  const least = atLeast(members, 'minProperties')
  const most = atMost(members, 'maxProperties')
  if (least > 1) throw new UnsupportedSchemaError('minProperties', path, 'more than 1 without declared properties')
  if (most < least) return builder.never
  const value = grammar.value(grammar.demands(mapParts(members, path)))
  const member = builder.sequence([json.quoted(mapKey(grammar, members)), json.colon, value])
  const some = most === 0 ? builder.never : json.list(member, 1, most)
  return json.bracketed('{', least === 0 ? builder.choice([some, builder.empty]) : some, '}')
}

function mapParts(members: readonly Member[], path: string): Located[] {
  const parts: Located[] = []
  for (const { schema, path: at } of members) {
    const { patternProperties, additionalProperties } = schema
    if (patternProperties !== undefined) {
      for (const [pattern, value] of Object.entries(patternProperties)) {
        parts.push({ schema: value, path: `${at}/patternProperties/${pointerPart(pattern)}` })
      }
    } else if (additionalProperties !== undefined) {
      parts.push({ schema: additionalProperties, path: `${at}/additionalProperties` })
    }
  }
  return parts.length > 0 ? parts : [{ schema: true, path: `${path}/additionalProperties` }]
}

function mapKey(grammar: SchemaNodes, members: readonly Member[]): Node {
  const { builder, json } = grammar
  const patterns = members.filter(({ schema }) => schema.patternProperties !== undefined)
  const names = members.filter(({ schema }) => schema.propertyNames !== undefined)
  if (patterns.length > 0) {
    const [{ schema, path }] = patterns
    const [pattern, ...others] = Object.keys(schema.patternProperties ?? {})
    if (pattern === undefined || others.length > 0 || patterns.length > 1 || names.length > 0) {
      throw new UnsupportedSchemaError('patternProperties', path, 'other than one pattern alone')
    }
    return regexGrammar(builder, pattern, path, jsonChar)
  }
  if (names.length === 0) return builder.repeat(json.anyChar, 0)
  const parts = names.map(({ schema, path }) => ({ schema: schema.propertyNames, path: `${path}/propertyNames` }))
  const demands = grammar.demands(parts)
  if (demands.isImpossible) return builder.never
  if (demands.choices.length > 0) {
    throw new UnsupportedSchemaError('propertyNames', names[0].path, 'with alternatives in it')
  }
  const constants = grammar.constants(demands.members)
  if (constants !== null) return json.oneOf(constants.filter(text => text[0] === '"').map(text => text.slice(1, -1)))
  const types = grammar.types(demands.members)
  return types === null || types.includes('string') ? stringContent(builder, demands.members, jsonChar) : builder.never
}

/** A name as part of a JSON pointer, shortened where it is endless. */
function pointerPart(name: string): string {
  return name.slice(0, 80).replaceAll('~', '~0').replaceAll('/', '~1')
}

/**
 * The first items each by its own schema, the others by one. The first ones are a chain in which
 * each has what follows it, so that n of them are n nodes.
 */
export function arrayGrammar(grammar: SchemaNodes, members: readonly Member[], path: string): Node {
  const { builder, json } = grammar
  const least = atLeast(members, 'minItems')
  const most = atMost(members, 'maxItems')
  if (least > most) return builder.never
  const heads = members.reduce((count, { schema }) => Math.max(count, schema.prefixItems?.length ?? 0), 0)
  const item = (index: number): Node => grammar.value(grammar.demands(itemParts(members, index, path)))

  // From the last to the first: what follows once so many items are written.
  const tail = item(heads)
  const more = builder.sequence([json.comma, tail])
  let following = heads > 0 ? builder.repeat(more, Math.max(0, least - heads), most - heads) : builder.never
  for (let written = heads - 1; written >= 1; written--) {
    following = next(builder.sequence([json.comma, item(written), following]), written)
  }
  function next(rest: Node, written: number): Node {
    if (written >= most) return builder.empty
    return written >= least ? builder.optional(rest) : rest
  }
  const content = heads > 0 ? builder.sequence([item(0), following]) : json.list(tail, least, most)
  return json.bracketed('[', next(content, 0), ']')
}

function itemParts(members: readonly Member[], index: number, path: string): Located[] {
  const parts: Located[] = []
  for (const { schema, path: at } of members) {
    const { prefixItems = [], items } = schema
    if (index < prefixItems.length) parts.push({ schema: prefixItems[index], path: `${at}/prefixItems/${index}` })
    else if (items !== undefined) parts.push({ schema: items, path: `${at}/items` })
  }
  return parts.length > 0 ? parts : [{ schema: true, path: `${path}/items` }]
}
