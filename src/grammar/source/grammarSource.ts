// Sources of grammars and how large they may be. The caller's thread measures a source in bounded
// time (sourceText), so that nothing huge is sent to a worker, which makes the program
// (draftProgram).
import { GrammarError, messageOf, UnsupportedSchemaError } from '../../base/errors.js'
import { MAX_CODE } from '../automaton/byteAutomaton.js'
import type { Program } from '../automaton/program.js'
import { JsonSchemaGrammar } from '../schema/jsonSchemaGrammar.js'
import { JsonText } from '../schema/jsonText.js'
import { ebnfGrammar, ebnfProgram } from './ebnf.js'
import { GrammarBuilder, type Node } from './grammarBuilder.js'
import type { CallSource, ChannelSource, GrammarSource, TextSource } from './sourceKinds.js'
import { toolCallGrammar } from './toolCallGrammar.js'

const SOURCE_LIMITS = {
  characters: 2 ** 20, // as JSON, all names and texts together
  values: 200_000, // numbers, texts, lists, objects
  depth: 200,
}

const MAX_STEPS = 1_000_000
const MOST_THOUGHTS = 4 // messages on the thinking channel: a model could write them without end

/** A source as text: what is sent to the thread, and the name under which its grammar is kept. */
export function sourceText(source: GrammarSource): string {
  measureSource(source)
  try {
    return JSON.stringify(source)
  } catch (error) {
    throw new GrammarError(`the grammar cannot be written as JSON: ${messageOf(error)}`)
  }
}

function measureSource(source: GrammarSource): void {
  if (source.kind === 'json_schema') measure(source.schema, 'schema', '#')
  else if (source.kind === 'tool_call') measure(source.tools, 'tools', '#')
  else if (source.kind === 'channels') {
    for (const part of [source.text?.grammar, source.call]) if (part) measureSource(part)
  } else if (source.kind === 'ebnf' && source.text.length > SOURCE_LIMITS.characters) {
    throw new GrammarError(`the grammar has ${source.text.length} characters, ${SOURCE_LIMITS.characters} are allowed`)
  }
}

export function draftProgram(text: string): Program {
  const source = JSON.parse(text) as GrammarSource
  if (source.kind === 'ebnf') return ebnfProgram(source.text)
  const builder = new GrammarBuilder()
  if (source.kind === 'channels') {
    const call = source.call && callGrammar(builder, source.call)
    return builder.finish(channelGrammar(builder, source, part => textGrammar(builder, part), call))
  }
  return builder.finish(source.kind === 'tool_call' ? callGrammar(builder, source) : textGrammar(builder, source))
}

function callGrammar(builder: GrammarBuilder, { tools, form, marks }: CallSource): Node {
  return toolCallGrammar(builder, tools, form, marks, stepsFor)
}

function textGrammar(builder: GrammarBuilder, source: TextSource): Node {
  if (source.kind === 'ebnf') return ebnfGrammar(builder, source.text)
  const json = new JsonText(builder)
  if (source.kind === 'json_object') return json.anyObject()
  const grammar = new JsonSchemaGrammar(json, source.schema, '#', stepsFor(source.schema))
  const node = grammar.build(grammar.whole())
  grammar.finish(node) // what could never end is the schema's fault, and is told as such
  return node
}

/** So many steps are a schema's due by its size: those that need more are out for trouble. */
function stepsFor(schema: unknown): number {
  return Math.min(MAX_STEPS, 20_000 + 40 * measure(schema, 'schema', '#'))
}

/** How many values there are in one. Throws as soon as there is more of it than allowed, however much more. */
function measure(value: unknown, keyword: string, path: string): number {
  const refuse = (what: string) => new UnsupportedSchemaError(keyword, path, what)
  const { characters, values, depth } = SOURCE_LIMITS
  let letters = 0
  let count = 1
  let level: unknown[] = [value]
  for (let deep = 0; level.length > 0; deep++) {
    if (deep > depth) throw refuse(`nested deeper than ${depth}`)
    const next: unknown[] = []
    for (const item of level) {
      if (typeof item === 'string') letters += item.length
      if (typeof item !== 'object' || item === null) continue
      const names = Array.isArray(item) ? null : Object.keys(item)
      count += names?.length ?? (item as unknown[]).length
      if (count > values) throw refuse(`has more than ${values} values`)
      for (const inner of Object.values(item)) next.push(inner)
      for (const name of names ?? []) letters += name.length
    }
    if (letters > characters) throw refuse(`has more than ${characters} characters`)
    level = next
  }
  return count
}

/**
 * A whole answer on channels: thinking, if the model likes, then one message that is text or a
 * call. The control tokens between messages are part of the grammar.
 */
function channelGrammar(
  builder: GrammarBuilder,
  { layout, text, marks }: ChannelSource,
  textGrammar: (source: TextSource) => Node,
  call: Node | null,
): Node {
  const anything = builder.repeat(builder.charClass([[0, MAX_CODE]]), 0)
  const { open, close } = layout.thinking
  const thought = builder.sequence([builder.marked(open, marks), anything, builder.marked(close, marks)])
  const answers = call === null ? [] : [call]
  if (text !== null) {
    const words = text.grammar === null ? anything : textGrammar(text.grammar)
    answers.push(builder.sequence([builder.marked(layout.text, marks), words]))
  }
  return builder.sequence([builder.repeat(thought, 0, MOST_THOUGHTS), builder.choice(answers)])
}
