// A JSON schema as a grammar, such that every text that the grammar matches is JSON and validates. The grammar may match
// less than the schema allows (no extra properties beside declared ones, no exponents where there are bounds): that is
// sound. What it could not guarantee is refused by name. It is as large as the schema is: what is demanded twice is one
// node, and objects and arrays are built one after the other and not inside of each other, so that neither depth nor
// recursion matters.
import { UnsupportedSchemaError } from '../../base/errors.js'
import type { Program } from '../automaton/program.js'
import { EndlessGrammarError } from '../automaton/programChecks.js'
import { type GrammarBuilder, GrammarSizeError, type Node } from '../source/grammarBuilder.js'
import { type Conjunction, type Located, type Member, SchemaDocument } from './conjunction.js'
import { type JsonText, jsonChar } from './jsonText.js'
import { anyInteger, anyNumber, boundedNumber, type NumberBounds } from './numberGrammar.js'
import { arrayGrammar, objectGrammar } from './objectGrammar.js'
import { canonical, fixedValues, requireDisjoint } from './oneOfOptions.js'
import { commonTypes, hasType, impliedTypes, type JsonType, namedTypes, VALUE_KEYWORDS } from './schemaKeywords.js'
import type { SchemaNodes } from './schemaNodes.js'
import { stringContent } from './stringGrammar.js'
import { WorkBudget } from './workBudget.js'

const MAX_DEPTH = 200 // of alternatives in alternatives

export class JsonSchemaGrammar implements SchemaNodes {
  readonly builder: GrammarBuilder
  private readonly work: WorkBudget
  private readonly document: SchemaDocument
  private readonly known = new Map<string, Node>() // by what is demanded
  private readonly open = new Set<string>() // demands whose node is being made
  private readonly containers = new Map<string, Node>()
  private readonly queue: { readonly rule: Node; readonly conjunction: Conjunction; readonly type: JsonType }[] = []

  constructor(
    readonly json: JsonText,
    private readonly schema: unknown,
    private readonly root: string, // what paths in messages begin with
    steps: number,
  ) {
    this.builder = json.builder
    this.work = new WorkBudget(steps)
    this.document = new SchemaDocument(schema, root, this.work)
  }

  /** What the schema as a whole demands. */
  whole(): Conjunction {
    return this.demands([{ schema: this.schema, path: this.root }])
  }

  /** Everything that must hold for the values at these places at once. */
  demands(parts: readonly Located[], base?: Pick<Conjunction, 'members' | 'choices'>): Conjunction {
    return this.document.conjunction(parts, base)
  }

  /** A whole grammar of what is demanded. */
  build(conjunction: Conjunction): Node {
    let path = conjunction.path
    try {
      const root = this.value(conjunction)
      for (let job = this.queue.pop(); job !== undefined; job = this.queue.pop()) {
        path = job.conjunction.path
        const { members } = job.conjunction
        const body = job.type === 'object' ? objectGrammar(this, members, path) : arrayGrammar(this, members, path)
        this.builder.keep(job.rule, body)
      }
      return root
    } catch (error) {
      if (!(error instanceof GrammarSizeError)) throw error
      throw new UnsupportedSchemaError('schema', path, error.message)
    }
  }

  finish(node: Node): Program {
    try {
      return this.builder.finish(node)
    } catch (error) {
      if (!(error instanceof EndlessGrammarError)) throw error
      throw new UnsupportedSchemaError('schema', this.root, 'no finite value can match')
    }
  }

  /** Part of a grammar; the objects and arrays in it are made later, by `build`. */
  value(conjunction: Conjunction): Node {
    const { key, path } = conjunction
    if (conjunction.isImpossible) return this.builder.never
    const before = this.known.get(key)
    if (before !== undefined) return before
    if (this.open.has(key)) {
      throw new UnsupportedSchemaError('$ref', path, 'a schema refers to itself without an object or array between')
    }
    if (this.open.size >= MAX_DEPTH) {
      throw new UnsupportedSchemaError('schema', path, `alternatives are nested deeper than ${MAX_DEPTH}`)
    }
    this.open.add(key)
    const node = conjunction.choices.length > 0 ? this.alternatives(conjunction) : this.plain(conjunction)
    this.open.delete(key)
    this.known.set(key, node)
    return node
  }

  /** The values that are allowed one by one, as JSON; null where they are not named. Of members without choices. */
  constants(members: readonly Member[]): string[] | null {
    const named = members.filter(({ schema }) => fixedValues(schema) !== null)
    if (named.length === 0) return null
    const { path } = named[0]
    const keyword = 'const' in named[0].schema ? 'const' : 'enum'
    for (const member of members) {
      const other = VALUE_KEYWORDS.find(key => key in member.schema && !['type', 'const', 'enum'].includes(key))
      if (other !== undefined) throw new UnsupportedSchemaError(other, member.path, `together with ${keyword}`)
    }
    let values: readonly unknown[] = fixedValues(named[0].schema)!
    this.work.spend(values.length, path)
    for (const { schema } of named.slice(1)) {
      const texts = new Set(fixedValues(schema)!.map(canonical))
      this.work.spend(texts.size, path)
      values = values.filter(value => texts.has(canonical(value)))
    }
    for (const { schema } of members) {
      const types = namedTypes(schema)
      if (types !== null) values = values.filter(value => types.some(type => hasType(value, type)))
      if ('const' in schema && schema.enum !== undefined) {
        const texts = new Set(schema.enum.map(canonical))
        values = values.filter(value => texts.has(canonical(value)))
      }
    }
    return values.map(value => JSON.stringify(value))
  }

  /** The types that are written: as said, or as keywords imply; null where nothing is said. */
  types(members: readonly Member[]): readonly JsonType[] | null {
    let types: readonly JsonType[] | null = null
    for (const { schema } of members) {
      const named = namedTypes(schema)
      if (named !== null) types = types === null ? named : commonTypes(types, named)
    }
    if (types === null) {
      const implied = members.flatMap(({ schema }) => impliedTypes(schema))
      return implied.length === 0 ? null : [...new Set(implied)]
    }
    const all: readonly JsonType[] = types
    return all.filter(type => !(type === 'integer' && all.includes('number')))
  }

  spend(steps: number, path: string): void {
    this.work.spend(steps, path)
  }

  /** One choice is made; those that are left are made with the option that was taken. */
  private alternatives({ members, choices, path }: Conjunction): Node {
    const [{ keyword, options }, ...rest] = choices
    const demands = options.map(option => this.demands([option], { members, choices: rest }))
    if (keyword === 'oneOf' && demands.length > 1) requireDisjoint(demands, path, this.work)
    const texts: string[] = []
    const nodes: Node[] = []
    for (const demand of demands) {
      const constants = demand.choices.length > 0 || demand.isImpossible ? null : this.constants(demand.members)
      if (constants === null) nodes.push(this.value(demand))
      else for (const text of constants) texts.push(text)
    }
    if (texts.length > 0) nodes.push(this.json.oneOf(texts))
    return this.builder.choice(nodes)
  }

  private plain(conjunction: Conjunction): Node {
    const { members } = conjunction
    const constants = this.constants(members)
    if (constants !== null) return this.json.oneOf(constants)
    const types = this.types(members)
    if (types === null) return this.json.anyValue()
    return this.builder.choice(types.map(type => this.typed(type, conjunction)))
  }

  private typed(type: JsonType, conjunction: Conjunction): Node {
    const { builder, json } = this
    switch (type) {
      case 'null':
        return builder.literal('null')
      case 'boolean':
        return builder.choice([builder.literal('true'), builder.literal('false')])
      case 'string':
        return json.quoted(stringContent(builder, conjunction.members, jsonChar))
      case 'integer':
      case 'number':
        return this.number(type, conjunction.members)
      default:
        return this.container(type, conjunction)
    }
  }

  private container(type: JsonType, conjunction: Conjunction): Node {
    const key = `${type} ${conjunction.key}`
    const before = this.containers.get(key)
    if (before !== undefined) return before
    const rule = this.builder.promise()
    this.containers.set(key, rule)
    this.queue.push({ rule, conjunction, type })
    return rule
  }

  private number(type: 'integer' | 'number', members: readonly Member[]): Node {
    const bounds: { -readonly [name in keyof NumberBounds]: number } = {}
    const tighten = (name: keyof NumberBounds, value: number | undefined, pick: (a: number, b: number) => number) => {
      if (value !== undefined) bounds[name] = pick(value, bounds[name] ?? value)
    }
    for (const { schema, path } of members) {
      if (schema.multipleOf !== undefined && !(type === 'integer' && schema.multipleOf === 1)) {
        throw new UnsupportedSchemaError('multipleOf', path)
      }
      tighten('minimum', schema.minimum, Math.max)
      tighten('exclusiveMinimum', schema.exclusiveMinimum, Math.max)
      tighten('maximum', schema.maximum, Math.min)
      tighten('exclusiveMaximum', schema.exclusiveMaximum, Math.min)
      this.work.spend(1, path)
    }
    if (Object.keys(bounds).length > 0) return boundedNumber(this.builder, type, bounds)
    return type === 'integer' ? anyInteger(this.builder) : anyNumber(this.builder)
  }
}
