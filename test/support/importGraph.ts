// Who imports whom in the sources: static imports, types alone as well, and imports at run time. Pure: from names and texts of
// files to edges, cycles and broken rules.
import { posix } from 'node:path'

export interface Import {
  readonly from: string // as 'chat/prompt.ts'
  readonly to: string
  /** Nothing of it is left at run time. */
  readonly isType: boolean
  /** Loaded when the line is reached. */
  readonly isLate: boolean
}

export type Sources = ReadonlyMap<string, string> // texts by name

const STATEMENT = /^\s*(?:import|export)\s+(type\s)?(?:[^'";]*?\sfrom\s+)?'([^']+)'/gm
const CALL = /\bimport\('([^']+)'\)/g

/** `known`: the files that there are. */
export function importsOf(sources: Sources, known: Sources = sources): Import[] {
  const found: Import[] = []
  for (const [from, text] of sources) {
    const add = (specifier: string, isType: boolean, isLate: boolean) => {
      const to = fileOf(known, from, specifier)
      if (to !== null) found.push({ from, to, isType, isLate })
    }
    for (const [, type, specifier] of text.matchAll(STATEMENT)) add(specifier, type !== undefined, false)
    for (const [, specifier] of text.matchAll(CALL)) add(specifier, false, true)
  }
  return found
}

/** Null: a package, or a file that the build makes. */
function fileOf(sources: Sources, from: string, specifier: string): string | null {
  const isOwn = specifier.startsWith('#moeflux/')
  if (!isOwn && !specifier.startsWith('.')) return null
  const path = isOwn ? specifier.slice('#moeflux/'.length) : posix.join(posix.dirname(from), specifier)
  const name = path.replace(/\.js$/, '')
  return [`${name}.ts`, `${name}.tsx`].find(each => sources.has(each)) ?? null
}

/** Groups of files that reach one another. */
export function cyclesIn(imports: readonly Import[]): string[][] {
  const next = targetsOf(imports)
  const order = new Map<string, number>()
  const low = new Map<string, number>()
  const open: string[] = []
  const cycles: string[][] = []
  const visit = (file: string): number => {
    const mine = order.size
    order.set(file, mine)
    low.set(file, mine)
    open.push(file)
    for (const to of next.get(file) ?? []) {
      if (!order.has(to)) low.set(file, Math.min(low.get(file)!, visit(to)))
      else if (open.includes(to)) low.set(file, Math.min(low.get(file)!, order.get(to)!))
    }
    if (low.get(file) === mine) {
      const group = open.splice(open.indexOf(file))
      if (group.length > 1) cycles.push(group.sort())
    }
    return low.get(file)!
  }
  for (const file of next.keys()) if (!order.has(file)) visit(file)
  return cycles
}

/** What is loaded together with a file, at once. */
export function loadedWith(entry: string, imports: readonly Import[]): Set<string> {
  const next = targetsOf(imports.filter(({ isType, isLate }) => !isType && !isLate))
  const loaded = new Set([entry])
  for (const file of loaded) for (const to of next.get(file) ?? []) loaded.add(to)
  return loaded
}

function targetsOf(imports: readonly Import[]): ReadonlyMap<string, readonly string[]> {
  const next = new Map<string, string[]>()
  for (const { from, to } of imports) {
    const targets = next.get(from)
    if (targets) targets.push(to)
    else next.set(from, [to])
  }
  return next
}
