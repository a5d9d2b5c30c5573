// Arrays of a schema: the first items each by its own schema, the others by one, as many as are allowed. The first ones are a
// chain in which each knows what follows it, so that eight thousand of them are eight thousand nodes.
import type { Node } from '../source/grammarBuilder.js'
import { atLeast, atMost, type Located, type Member } from './conjunction.js'
import type { SchemaNodes } from './schemaNodes.js'

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
