// The grammar of what stands between `<tool_call>` and `</tool_call>`: one of the given tools, with arguments that its
// schema allows. Two ways of writing it exist in this family; which one a model was trained on shows in its template.
import { UnsupportedSchemaError } from '../errors.js'
import { choice, empty, grammarText, literal, type Node, repeat, rule, sequence } from './grammarTree.js'
import { anyJsonRules, JSON_RULE, jsonSchemaRules } from './jsonSchemaGrammar.js'
import { plainChar, regexGrammar } from './regexGrammar.js'

export type ToolCallForm = 'json' | 'tags'

export interface ToolSchema {
  readonly name: string
  readonly parameters?: unknown // a JSON schema of an object; absent: no arguments
  /** Arguments must validate: a schema that cannot be guaranteed is an error. Otherwise any JSON object may do. */
  readonly strict?: boolean
}

export function toolCallForm(chatTemplate: string | null): ToolCallForm {
  return chatTemplate?.includes('<function=') ? 'tags' : 'json'
}

/** EBNF of one call, from the character after `<tool_call>` to the one before `</tool_call>`. */
export function toolCallGrammar(tools: readonly ToolSchema[], form: ToolCallForm): string {
  const rules = new Map<string, Node>([['root', empty]])
  const calls = tools.map((tool, index) => {
    const prefix = `tool_${index}`
    return form === 'json' ? jsonCall(tool, prefix, rules) : tagCall(tool, prefix, rules)
  })
  rules.set('root', choice(...calls))
  return grammarText(rules)
}

function jsonCall(tool: ToolSchema, prefix: string, rules: Map<string, Node>): Node {
  addArguments(tool, prefix, rules)
  return sequence(literal(`\n{"name": ${JSON.stringify(tool.name)}, "arguments": `), rule(prefix), literal('}\n'))
}

function addArguments(tool: ToolSchema, prefix: string, rules: Map<string, Node>): void {
  const schema = tool.parameters ?? { type: 'object', properties: {}, additionalProperties: false }
  try {
    for (const [name, body] of jsonSchemaRules(schema, prefix)) rules.set(name, body)
  } catch (error) {
    if (tool.strict || !(error instanceof UnsupportedSchemaError)) throw error
    for (const [name, body] of anyJsonRules()) rules.set(name, body)
    rules.set(prefix, rule(`${JSON_RULE}_object`))
  }
}

/** `<function=name>`, then `<parameter=key>` with text as it is for strings and JSON for the rest. */
function tagCall(tool: ToolSchema, prefix: string, rules: Map<string, Node>): Node {
  const schema = isObject(tool.parameters) ? tool.parameters : {}
  const properties = isObject(schema.properties) ? schema.properties : {}
  const required = new Set(Array.isArray(schema.required) ? schema.required.map(String) : [])
  const parameters = Object.entries(properties).map(([name, property], index) => {
    const value = parameterValue(property, `${prefix}_${index}`, tool.strict === true, rules)
    const written = sequence(literal(`<parameter=${name}>\n`), value, literal('\n</parameter>\n'))
    return required.has(name) ? written : repeat(written, 0, 1)
  })
  return sequence(literal(`\n<function=${tool.name}>\n`), ...parameters, literal('</function>\n'))
}

function parameterValue(schema: unknown, prefix: string, strict: boolean, rules: Map<string, Node>): Node {
  const anyText = repeat(plainChar([[0, 0x10ffff]]), 0, Number.POSITIVE_INFINITY)
  if (isObject(schema) && schema.type === 'string') {
    if (Array.isArray(schema.enum)) return choice(...schema.enum.map(value => literal(String(value))))
    if (typeof schema.const === 'string') return literal(schema.const)
    if (typeof schema.pattern === 'string') return regexGrammar(schema.pattern, `#/${prefix}`, plainChar)
    const { minLength, maxLength } = schema
    if (minLength === undefined && maxLength === undefined) return anyText
    return repeat(plainChar([[0, 0x10ffff]]), Number(minLength ?? 0), Number(maxLength ?? Number.POSITIVE_INFINITY))
  }
  try {
    for (const [name, body] of jsonSchemaRules(schema, prefix)) rules.set(name, body)
    return rule(prefix)
  } catch (error) {
    if (strict || !(error instanceof UnsupportedSchemaError)) throw error
    return anyText
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
