// The grammar of what stands between `<tool_call>` and `</tool_call>`: one of the given tools, with arguments that its
// schema allows. Two ways of writing it exist in this family; which one a model was trained on shows in its template.
import { UnsupportedSchemaError } from '../errors.js'
import { MAX_CODE } from './byteAutomaton.js'
import type { Conjunction } from './conjunction.js'
import type { GrammarBuilder, Node } from './grammarBuilder.js'
import { JsonSchemaGrammar } from './jsonSchemaGrammar.js'
import { JsonText, plainChar } from './jsonText.js'
import { declaredProperties, type Property } from './objectGrammar.js'
import { stringContent } from './stringGrammar.js'

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

/** One call, from the character after `<tool_call>` to the one before `</tool_call>`. `steps` are for each tool's schema. */
export function toolCallGrammar(
  builder: GrammarBuilder,
  tools: readonly ToolSchema[],
  form: ToolCallForm,
  steps: (schema: unknown) => number,
): Node {
  const json = new JsonText(builder)
  const calls = tools.map(tool => {
    const schema = tool.parameters ?? { type: 'object', properties: {}, additionalProperties: false }
    const grammar = new JsonSchemaGrammar(json, schema, `${tool.name}#`, steps(schema))
    return form === 'json' ? jsonCall(grammar, tool) : tagCall(grammar, tool)
  })
  return builder.choice(calls)
}

function jsonCall(grammar: JsonSchemaGrammar, tool: ToolSchema): Node {
  const { builder, json } = grammar
  const values = guaranteed(
    tool,
    () => checked(grammar, grammar.build(grammar.whole())),
    () => json.anyObject(),
  )
  const head = builder.literal(`\n{"name": ${JSON.stringify(tool.name)}, "arguments": `)
  return builder.sequence([head, values, builder.literal('}\n')])
}

/** `<function=name>`, then `<parameter=key>` with text as it is for strings and JSON for the rest. */
function tagCall(grammar: JsonSchemaGrammar, tool: ToolSchema): Node {
  const { builder } = grammar
  const written = (name: Node, value: Node) =>
    builder.sequence([
      builder.literal('<parameter='),
      name,
      builder.literal('>\n'),
      value,
      builder.literal('\n</parameter>\n'),
    ])
  const parameters = guaranteed(
    tool,
    () =>
      parameterList(grammar).map(({ name, demands, isRequired }) => {
        const value = guaranteed(
          tool,
          () => checked(grammar, parameterValue(grammar, demands)),
          () => anyText(builder),
        )
        const parameter = written(builder.literal(name), value)
        return isRequired ? parameter : builder.optional(parameter)
      }),
    () => [builder.repeat(written(anyName(builder), anyText(builder)), 0)],
  )
  const head = builder.literal(`\n<function=${tool.name}>\n`)
  return builder.sequence([head, ...parameters, builder.literal('</function>\n')])
}

function parameterList(grammar: JsonSchemaGrammar): readonly Property[] {
  const { members, choices, isImpossible, path } = grammar.whole()
  const types = grammar.types(members)
  if (choices.length > 0)
    throw new UnsupportedSchemaError(choices[0].keyword, choices[0].path, 'for all parameters of a tool')
  const isObject = types === null || types.includes('object')
  const properties = isObject && !isImpossible ? declaredProperties(grammar, members, path) : null
  if (properties === null) throw new UnsupportedSchemaError('schema', path, 'no object can match')
  return properties
}

function parameterValue(grammar: JsonSchemaGrammar, demands: Conjunction): Node {
  const { members, choices } = demands
  const types = grammar.types(members)
  if (choices.length > 0 || types?.length !== 1 || types[0] !== 'string') return grammar.build(demands)
  const constants = grammar.constants(members)
  if (constants !== null) return grammar.json.oneOf(constants.map(text => String(JSON.parse(text))))
  return stringContent(grammar.builder, members, plainChar)
}

/** What cannot be guaranteed is an error of a strict tool, and free for others. */
function guaranteed<T>({ strict }: ToolSchema, make: () => T, otherwise: () => T): T {
  try {
    return make()
  } catch (error) {
    if (strict || !(error instanceof UnsupportedSchemaError)) throw error
    return otherwise()
  }
}

/** Arguments that could never end are found out here, before they are one option among others. */
function checked(grammar: JsonSchemaGrammar, node: Node): Node {
  grammar.finish(node)
  return node
}

function anyText(builder: GrammarBuilder): Node {
  return builder.repeat(plainChar(builder, [[0, MAX_CODE]]), 0)
}

function anyName(builder: GrammarBuilder): Node {
  const letters = [
    [0x30, 0x39],
    [0x41, 0x5a],
    [0x5f, 0x5f],
    [0x61, 0x7a],
  ] as const
  return builder.repeat(builder.charClass(letters), 1, 64)
}
