// What type a tool's parameter has by the tool's JSON schema, for calls whose values are bare text.
import type { PlainTool } from '../text/messages.js'

type Schema = Record<string, unknown>

export function parameterTypes(tools: readonly PlainTool[]): (tool: string, parameter: string) => string | undefined {
  const byTool = new Map<string, Map<string, string>>()
  for (const tool of tools) {
    const { name, parameters } = tool.function as { name: string; parameters?: { properties?: Schema } }
    const types = new Map<string, string>()
    for (const [key, schema] of Object.entries(parameters?.properties ?? {})) {
      const type = typeOf(schema)
      if (type !== undefined) types.set(key, type)
    }
    byTool.set(name, types)
  }
  return (tool, parameter) => byTool.get(tool)?.get(parameter)
}

/** Of several allowed types, text comes first: it takes any value as it is. */
function typeOf(schema: unknown): string | undefined {
  if (schema === null || typeof schema !== 'object') return undefined
  const { type, anyOf, oneOf } = schema as { type?: unknown; anyOf?: unknown; oneOf?: unknown }
  const several = Array.isArray(anyOf) ? anyOf : Array.isArray(oneOf) ? oneOf : null
  const types = several !== null ? several.map(typeOf) : Array.isArray(type) ? type : [type]
  const named = types.filter(entry => typeof entry === 'string')
  return named.includes('string') ? 'string' : named.find(entry => entry !== 'null')
}
