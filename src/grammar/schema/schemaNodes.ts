// What grammars of objects and arrays ask of the grammar of the whole schema, which asks them in turn.
import type { GrammarBuilder, Node } from '../source/grammarBuilder.js'
import type { Conjunction, Located, Member } from './conjunction.js'
import type { JsonText } from './jsonText.js'
import type { JsonType } from './schemaKeywords.js'

export interface SchemaNodes {
  readonly builder: GrammarBuilder
  readonly json: JsonText
  /** Everything that must hold for the values at these places at once. */
  demands(parts: readonly Located[]): Conjunction
  /** A value of which this is demanded. */
  value(conjunction: Conjunction): Node
  /** The only values that all members allow, as JSON; null: they do not name any. */
  constants(members: readonly Member[]): string[] | null
  /** The types that all members allow; null: any. */
  types(members: readonly Member[]): readonly JsonType[] | null
  /** Counts work, of which a schema may cause only so much. */
  spend(steps: number, path: string): void
}
