// What strings may hold by a schema: lengths, patterns and formats. A pattern and a length together would need the
// intersection of two grammars, and so would two patterns: these are refused.
import { UnsupportedSchemaError } from '../../base/errors.js'
import { MAX_CODE } from '../automaton/byteAutomaton.js'
import type { GrammarBuilder, Node } from '../source/grammarBuilder.js'
import { regexGrammar } from '../source/regexGrammar.js'
import { atLeast, atMost, type Member } from './conjunction.js'
import type { CharEncoder } from './jsonText.js'
import { shown } from './schemaKeywords.js'

/** Narrower than what the formats allow, where that keeps a model from going on for ever. */
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

/** The text of a string that all of `members` allow, without quotes. `encode` says how its characters are written. */
export function stringContent(builder: GrammarBuilder, members: readonly Member[], encode: CharEncoder): Node {
  let pattern: { text: string; keyword: 'pattern' | 'format'; path: string } | null = null
  for (const { schema, path } of members) {
    for (const keyword of ['pattern', 'format'] as const) {
      const given = schema[keyword]
      if (given === undefined) continue
      const text = keyword === 'pattern' ? given : formatPattern(given, path)
      if (pattern !== null && pattern.text !== text) {
        throw new UnsupportedSchemaError(keyword, path, `together with another ${pattern.keyword}`)
      }
      pattern = { text, keyword, path }
    }
  }
  if (pattern === null) {
    const char = encode(builder, [[0, MAX_CODE]])
    return builder.repeat(char, atLeast(members, 'minLength'), atMost(members, 'maxLength'))
  }
  if (members.some(({ schema }) => schema.minLength !== undefined || schema.maxLength !== undefined)) {
    throw new UnsupportedSchemaError(pattern.keyword, pattern.path, 'together with minLength or maxLength')
  }
  return regexGrammar(builder, pattern.text, pattern.path, encode)
}

function formatPattern(format: string, path: string): string {
  const pattern = FORMATS.get(format)
  if (pattern !== undefined) return pattern
  const known = [...FORMATS.keys()].join(', ')
  throw new UnsupportedSchemaError('format', path, `${shown(format)} (there are: ${known})`)
}
