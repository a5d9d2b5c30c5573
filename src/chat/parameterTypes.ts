// What type a tool's parameter has by the tool's JSON schema, for calls whose values are bare text. Grammars write text bare
// only where nothing but text is allowed, and JSON for all else, so that is how values are read: 'mixed' is text, unless it is a
// JSON string or null; any type that is neither that nor 'string' is JSON where the value is such.

import type { ParameterType } from '../text/answer/splitter.js'
import type { PlainTool } from '../text/template/messages.js'

type Schema = Record<string, unknown>

const MOST_REFERENCES = 16

export function parameterTypes(tools: readonly PlainTool[]): ParameterType {
  const byTool = new Map<string, Map<string, string>>()
  for (const tool of tools) {
    const { name, parameters } = tool.function as { name: string; parameters?: { properties?: Schema } }
    const types = new Map<string, string>()
    for (const [key, schema] of Object.entries(parameters?.properties ?? {})) {
      const type = typeOf(schema, parameters, MOST_REFERENCES)
      if (type !== undefined) types.set(key, type)
    }
    byTool.set(name, types)
  }
  return (tool, parameter) => byTool.get(tool)?.get(parameter)
}

function typeOf(schema: unknown, root: unknown, references: number): string | undefined {
  if (schema === null || typeof schema !== 'object' || references === 0) return undefined
  const { $ref, type, anyOf, oneOf, allOf, enum: values, const: value, properties, items } = schema as Schema
  const inner = (each: unknown) => typeOf(each, root, references - 1)
  if (typeof $ref === 'string') return inner(pointed(root, $ref))
  const several = [anyOf, oneOf].find(Array.isArray)
  if (several !== undefined) return oneOfSeveral(several.map(inner), false)
  if (Array.isArray(type)) return oneOfSeveral(type, type.length === 1)
  if (typeof type === 'string') return type
  const fixed = Array.isArray(values) ? values : value !== undefined ? [value] : null
  if (fixed !== null) return fixed.every(each => typeof each === 'string') ? 'mixed' : 'enum'
  if (Array.isArray(allOf)) return allOf.map(inner).find(each => each !== undefined)
  return properties !== undefined ? 'object' : items !== undefined ? 'array' : undefined
}

/** Of several allowed types, text comes first: it takes any value as it is. */
function oneOfSeveral(types: readonly unknown[], isOnly: boolean): string | undefined {
  const named = types.filter(each => typeof each === 'string')
  if (named.includes('string') || named.includes('mixed')) return isOnly ? 'string' : 'mixed'
  return named.find(each => each !== 'null')
}

/** What a reference inside of the document points to. */
function pointed(root: unknown, reference: string): unknown {
  if (!reference.startsWith('#/')) return undefined
  return reference
    .slice(2)
    .split('/')
    .map(part => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<unknown>((at, part) => {
      return at !== null && typeof at === 'object' && Object.hasOwn(at, part) ? (at as Schema)[part] : undefined
    }, root)
}
