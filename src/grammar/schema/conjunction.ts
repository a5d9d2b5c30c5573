// What a value must match all at once: the schemas that references and `allOf` lead to, each once, however often they are
// mentioned. Nothing is copied or merged here, so that a schema that names another a million times over costs as much as
// one that names it once. Alternatives are left as choices, to be made one by one and only where they matter.
import { UnsupportedSchemaError } from '../../base/errors.js'
import { type CheckedSchema, checkSchema, isObject, shown, VALUE_KEYWORDS } from './schemaKeywords.js'
import type { WorkBudget } from './workBudget.js'

/** A schema, or what stands where one should, and where that is. */
export interface Located {
  readonly schema: unknown
  readonly path: string
}

export interface Member {
  readonly id: number
  readonly schema: CheckedSchema
  readonly path: string
}

export interface Choice {
  readonly id: string
  readonly keyword: 'anyOf' | 'oneOf'
  readonly options: readonly Located[]
  readonly path: string
}

export interface Conjunction {
  /** The same for the same demands. */
  readonly key: string
  readonly path: string // of the first schema that was asked for
  readonly members: readonly Member[]
  readonly choices: readonly Choice[]
  readonly isImpossible: boolean
}

type CountKeyword = 'minItems' | 'maxItems' | 'minLength' | 'maxLength' | 'minProperties' | 'maxProperties'

/** The largest of what the members say; 0 where none says anything. */
export function atLeast(members: readonly Member[], keyword: CountKeyword): number {
  return members.reduce((count, { schema }) => Math.max(count, schema[keyword] ?? 0), 0)
}

/** The smallest of what the members say; Infinity where none says anything. */
export function atMost(members: readonly Member[], keyword: CountKeyword): number {
  const none = Number.POSITIVE_INFINITY
  return members.reduce((count, { schema }) => Math.min(count, schema[keyword] ?? none), none)
}

export class SchemaDocument {
  private readonly ids = new Map<object, number>()
  private readonly checked = new Set<object>()
  private readonly resolved = new Map<string, Located>()

  constructor(
    private readonly document: unknown,
    private readonly root: string, // what paths begin with
    private readonly work: WorkBudget,
  ) {}

  /** All demands of `parts`, beside what is already demanded. */
  conjunction(parts: readonly Located[], base: Pick<Conjunction, 'members' | 'choices'> = NO_DEMANDS): Conjunction {
    const members = new Map(base.members.map(member => [member.id, member]))
    const choices = new Map(base.choices.map(choice => [choice.id, choice]))
    let isImpossible = false
    const open = new Set<object>()
    const done = new Set<object>()
    const agenda: (Located | { member: Member } | { leave: object })[] = parts.toReversed()
    this.work.spend(1 + members.size + choices.size, parts[0].path)
    for (let part = agenda.pop(); part !== undefined; part = agenda.pop()) {
      if ('leave' in part) {
        open.delete(part.leave)
        done.add(part.leave)
        continue
      }
      if ('member' in part) {
        members.set(part.member.id, part.member)
        continue
      }
      const { schema: value, path } = part
      this.work.spend(1, path)
      if (value === true) continue
      if (value === false) {
        isImpossible = true
        continue
      }
      if (!isObject(value)) throw new UnsupportedSchemaError('schema', path, 'is not an object or a boolean')
      if (done.has(value)) continue
      if (open.has(value)) throw new UnsupportedSchemaError('schema', path, 'refers to itself: no value can match')
      const schema = this.check(value, path)
      const id = this.id(value)
      open.add(value)
      agenda.push({ leave: value })
      // Taken from the end: what a reference leads to comes before what stands beside it, that before its `allOf`.
      const { allOf = [] } = schema
      for (let i = allOf.length - 1; i >= 0; i--) agenda.push({ schema: allOf[i], path: `${path}/allOf/${i}` })
      if (VALUE_KEYWORDS.some(keyword => keyword in schema)) agenda.push({ member: { id, schema, path } })
      if (schema.$ref !== undefined) agenda.push(this.resolve(schema.$ref, path))
      for (const keyword of ['anyOf', 'oneOf'] as const) {
        const options = schema[keyword]?.map((option, i) => ({ schema: option, path: `${path}/${keyword}/${i}` }))
        if (options !== undefined) choices.set(`${id}${keyword}`, { id: `${id}${keyword}`, keyword, options, path })
      }
    }
    const ids = [...members.keys()].sort((a, b) => a - b)
    const key = isImpossible ? 'impossible' : `${ids.join()} ${[...choices.keys()].sort().join()}`
    return { key, path: parts[0].path, members: [...members.values()], choices: [...choices.values()], isImpossible }
  }

  private check(value: Record<string, unknown>, path: string): CheckedSchema {
    if (this.checked.has(value)) return value
    this.work.spend(Object.keys(value).length, path)
    const schema = checkSchema(value, path)
    this.checked.add(value)
    return schema
  }

  private id(value: object): number {
    const known = this.ids.get(value)
    if (known !== undefined) return known
    this.ids.set(value, this.ids.size)
    return this.ids.size - 1
  }

  private resolve(reference: string, path: string): Located {
    const known = this.resolved.get(reference)
    if (known !== undefined) return known
    const refuse = (why: string) => new UnsupportedSchemaError('$ref', path, `${shown(reference)} ${why}`)
    if (reference !== '#' && !reference.startsWith('#/')) throw refuse('is not inside this schema')
    let schema: unknown = this.document
    for (const part of reference.split('/').slice(1)) {
      this.work.spend(1, path)
      let key: string
      try {
        key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
      } catch {
        throw refuse('has a broken escape')
      }
      if (typeof schema !== 'object' || schema === null || !Object.hasOwn(schema, key)) throw refuse('points nowhere')
      schema = (schema as Record<string, unknown>)[key]
    }
    if (typeof schema !== 'boolean' && !isObject(schema)) throw refuse('points at something that is no schema')
    const found = { schema, path: this.root + reference.slice(1, 1000) }
    this.resolved.set(reference, found)
    return found
  }
}

const NO_DEMANDS: Pick<Conjunction, 'members' | 'choices'> = { members: [], choices: [] }
