// The meaning of a grammar by its definition, for short texts: tries everything, remembers nothing, knows no stacks. What
// the walk through a program is compared with.
import type { Expression } from '#moeflux/grammar/source/leftRecursion.js'

type Rules = ReadonlyMap<string, Expression>

export function naiveGrammar(rules: Rules) {
  const root: Expression = { kind: 'rule', name: 'root' }
  return {
    /** Whether some text of the grammar begins like this. Every rule must have a text that ends. */
    isBeginning(text: string): boolean {
      const reading = new Reading(rules, text)
      return reading.isOpen(root, 0) || reading.ends(root, 0).has(text.length)
    },
    matches: (text: string): boolean => new Reading(rules, text).ends(root, 0).has(text.length),
  }
}

class Reading {
  private readonly ruleEnds = new Map<string, Set<number>>()
  private readonly ruleOpen = new Map<string, boolean>()
  private known = new Map<Expression, Map<number, Set<number>>>() // of this round

  constructor(
    rules: Rules,
    private readonly text: string,
  ) {
    // The least solution, also for rules that begin with themselves.
    for (let grew = true; grew; ) {
      grew = false
      this.known = new Map()
      for (const [name, body] of rules) {
        for (let from = 0; from <= text.length; from++) {
          const key = `${name} ${from}`
          const ends = this.ends(body, from)
          const open = this.isOpen(body, from)
          grew ||= ends.size > (this.ruleEnds.get(key)?.size ?? 0) || open !== (this.ruleOpen.get(key) ?? false)
          this.ruleEnds.set(key, ends)
          this.ruleOpen.set(key, open)
        }
      }
    }
  }

  /** Where a text of `expression` that begins at `from` may end. */
  ends(expression: Expression, from: number): Set<number> {
    const places = this.known.get(expression) ?? new Map<number, Set<number>>()
    const ends = places.get(from) ?? this.findEnds(expression, from)
    this.known.set(expression, places.set(from, ends))
    return ends
  }

  private findEnds(expression: Expression, from: number): Set<number> {
    const { text } = this
    switch (expression.kind) {
      case 'text':
        return new Set(text.startsWith(expression.text, from) ? [from + expression.text.length] : [])
      case 'class': {
        const code = text.charCodeAt(from)
        return new Set(expression.ranges.some(([first, last]) => code >= first && code <= last) ? [from + 1] : [])
      }
      case 'rule':
        return new Set(this.ruleEnds.get(`${expression.name} ${from}`))
      case 'choice':
        return new Set(expression.options.flatMap(option => [...this.ends(option, from)]))
      case 'sequence':
        return expression.items.reduce((places, item) => this.after(item, places), new Set([from]))
      case 'repeat': {
        const out = new Set<number>()
        for (const [times, places] of this.repetitions(expression, from)) {
          if (times >= expression.min) for (const place of places) out.add(place)
        }
        return out
      }
    }
  }

  /** Whether the text is used up somewhere inside of an `expression` that begins at `from`. */
  isOpen(expression: Expression, from: number): boolean {
    const { text } = this
    switch (expression.kind) {
      case 'text':
        return expression.text.startsWith(text.slice(from))
      case 'class':
        return from === text.length
      case 'rule':
        return from === text.length || (this.ruleOpen.get(`${expression.name} ${from}`) ?? false)
      case 'choice':
        return expression.options.some(option => this.isOpen(option, from))
      case 'sequence': {
        let places = new Set([from])
        for (const item of expression.items) {
          if ([...places].some(place => this.isOpen(item, place))) return true
          places = this.after(item, places)
        }
        return places.has(text.length)
      }
      case 'repeat': {
        const all = [...this.repetitions(expression, from)]
        if (all.some(([times, places]) => times >= expression.min && places.has(text.length))) return true
        return all.some(
          ([times, places]) => times < expression.max && [...places].some(place => this.isOpen(expression.item, place)),
        )
      }
    }
  }

  private after(item: Expression, places: ReadonlySet<number>): Set<number> {
    return new Set([...places].flatMap(place => [...this.ends(item, place)]))
  }

  private *repetitions({ item, min, max }: Extract<Expression, { kind: 'repeat' }>, from: number) {
    let places = new Set([from])
    const most = Math.min(max, Math.max(min, this.text.length + 1))
    for (let times = 0; times <= most && places.size > 0; times++) {
      yield [times, places] as const
      places = this.after(item, places)
    }
  }
}

/** The grammar as people write it. */
export function ebnfText(rules: Rules): string {
  return [...rules].map(([name, body]) => `${name} ::= ${written(body)}`).join('\n')
}

function written(expression: Expression): string {
  switch (expression.kind) {
    case 'text':
      return JSON.stringify(expression.text)
    case 'class':
      return `[${expression.ranges.map(range => range.map(code => String.fromCharCode(code)).join('-')).join('')}]`
    case 'rule':
      return expression.name
    case 'sequence':
      return `(${expression.items.map(written).join(' ')})`
    case 'choice':
      return `(${expression.options.map(written).join(' | ')})`
    case 'repeat': {
      const most = expression.max >= 1000 ? '' : expression.max
      return `(${written(expression.item)}){${expression.min},${most}}`
    }
  }
}
