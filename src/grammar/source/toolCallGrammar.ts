// The grammar of one tool call: one of the given tools, with arguments that its schema allows, written as the model's dialect
// writes it.
import { UnsupportedSchemaError } from '../../base/errors.js'
import type { CallForm } from '../../text/dialects/dialect.js'
import { MAX_CODE } from '../automaton/byteAutomaton.js'
import type { Conjunction } from '../schema/conjunction.js'
import { JsonSchemaGrammar } from '../schema/jsonSchemaGrammar.js'
import { JsonText, plainChar } from '../schema/jsonText.js'
import { declaredProperties, type Property } from '../schema/objectGrammar.js'
import { stringContent } from '../schema/stringGrammar.js'
import type { GrammarBuilder, Node } from './grammarBuilder.js'
import type { Marks } from './marks.js'

export interface ToolSchema {
  readonly name: string
  readonly parameters?: unknown // a JSON schema of an object; absent: no arguments
  /** Arguments must validate: a schema that cannot be guaranteed is an error. Otherwise any JSON object may do. */
  readonly strict?: boolean
}

type ParameterTags = Exclude<CallForm['arguments'], 'json'>

/** One call, without what opens and closes it. `steps` are for each tool's schema. */
export function toolCallGrammar(
  builder: GrammarBuilder,
  tools: readonly ToolSchema[],
  form: CallForm,
  marks: Marks,
  steps: (schema: unknown) => number,
): Node {
  const json = new JsonText(builder)
  const calls = tools.map(tool => {
    const schema = tool.parameters ?? { type: 'object', properties: {}, additionalProperties: false }
    const grammar = new JsonSchemaGrammar(json, schema, `${tool.name}#`, steps(schema))
    const name = form.name === 'quoted' ? JSON.stringify(tool.name).slice(1, -1) : tool.name
    const values =
      form.arguments === 'json' ? jsonObject(grammar, tool) : parameters(grammar, tool, form.arguments, marks)
    return builder.sequence([
      builder.marked(form.open, marks),
      builder.literal(name),
      builder.marked(form.afterName, marks),
      ...values,
      builder.marked(form.close, marks),
    ])
  })
  return builder.choice(calls)
}

function jsonObject(grammar: JsonSchemaGrammar, tool: ToolSchema): Node[] {
  const values = guaranteed(
    tool,
    () => checked(grammar, grammar.build(grammar.whole())),
    () => grammar.json.anyObject(),
  )
  return [values]
}

/** Each parameter between its tags, with text as it is for strings and JSON for the rest. */
function parameters(grammar: JsonSchemaGrammar, tool: ToolSchema, tags: ParameterTags, marks: Marks): Node[] {
  const { builder } = grammar
  const written = (name: Node, value: Node) =>
    builder.sequence([
      builder.marked(tags.open, marks),
      name,
      builder.marked(tags.afterKey, marks),
      value,
      builder.marked(tags.close, marks),
    ])
  return guaranteed(
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
