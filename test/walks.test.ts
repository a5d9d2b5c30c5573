// The walks of docs/dev/architecture.md against the tree: each file exists, is connected by an import
// with an earlier file of its walk (unless it is reached across a thread, kernels or the GPU), and the
// table counts as many files as the walk lists.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { type Import, importsOf } from './support/importGraph.js'
import { repository } from './support/models/packedFiles.js'

interface Walk {
  readonly title: string
  readonly counted: number // files, says the table; NaN: the table has no such walk
  readonly files: readonly Stop[]
}

interface Stop {
  readonly path: string // below src
  readonly crosses: boolean // a thread, a module of kernels, the GPU
}

const FILE = /^ +(?:([→⇒]) )?([\w./-]+\.(?:tsx?|wgsl))(?: |$)/
const page = readFileSync(join(repository, 'docs/dev/architecture.md'), 'utf8')

test('there are four walks', () => {
  const titles = walksOf(page).map(({ title }) => title)
  const wanted = [
    "A prompt's token",
    "An expert's bytes on wasm",
    "An expert's bytes on webgpu",
    'A request with tools',
  ]
  expect(titles).toEqual(wanted)
})

test('the files of a walk exist, are connected, and are as many as the page says', () => {
  expect(walksOf(page).flatMap(problemsOf)).toEqual([])
})

test.each([
  [
    'a path that does not exist',
    /→ engine\/context\.ts/,
    '→ engine/contexts.ts',
    /engine\/contexts\.ts does not exist/,
  ],
  [
    'a file that no import connects',
    /→ apps\/cli\/terminal\.ts/,
    '→ files/hub/hubLimits.ts',
    /no import .* files\/hub\/hubLimits\.ts/,
  ],
  ['a call that crosses', /⇒ text\/workers\/nodeTextWorker\.ts/, '→ experts/readers/nodeReaderWorker.ts', /no import/],
  ['a file that is listed twice', /→ engine\/context\.ts/, '→ chat/session.ts', /lists chat\/session\.ts twice/],
  ['a line that is no file', /→ engine\/context\.ts/, '→ engine/context', /cannot read/],
  ['a wrong count', /(\(#a-prompts-token\).*\| )(\d+)( \|\n)/, '$11$2$3', /has \d+ files, the table says 1\d+/],
])('%s is found', (_what, from, to, problem) => {
  const changed = page.replace(from, to)
  expect(changed).not.toBe(page)
  const before = walksOf(page).flatMap(problemsOf)
  const found = walksOf(changed).flatMap(problemsOf)
  expect(found.filter(each => !before.includes(each)).join('\n')).toMatch(problem)
})

function problemsOf({ title, counted, files }: Walk): string[] {
  const problems: string[] = []
  const seen = new Set<string>()
  for (const { path, crosses } of files) {
    const isKnown = existsSync(join(repository, 'src', path))
    if (!isKnown) problems.push(`${title}: ${path} does not exist`)
    else if (seen.size > 0 && !crosses && !isConnected(path, seen)) {
      problems.push(`${title}: no import connects ${path} with a file before it`)
    }
    if (seen.has(path)) problems.push(`${title}: lists ${path} twice`)
    seen.add(path)
  }
  if (seen.size !== counted) problems.push(`${title}: has ${seen.size} files, the table says ${counted}`)
  return problems
}

function isConnected(path: string, others: ReadonlySet<string>): boolean {
  return imports.some(({ from, to }) => (from === path && others.has(to)) || (to === path && others.has(from)))
}

/** The blocks ```walk with their headings, and the last column of the table that links there. */
function walksOf(text: string): Walk[] {
  return [...text.matchAll(/^### (.+)\n(?:(?!^#).*\n)*?```walk\n([^`]*)```/gm)].map(([, title, block]) => {
    const row = text.split('\n').find(line => line.startsWith(`| [${title}](#`))
    const counted = Number(row?.split('|').at(-2) ?? Number.NaN)
    return { title, counted, files: filesOf(title, block) }
  })
}

/** A line is a file, or names what follows. */
function filesOf(title: string, block: string): Stop[] {
  return block.split('\n').flatMap(line => {
    const [, arrow, path] = FILE.exec(line) ?? []
    if (path !== undefined) return [{ path, crosses: arrow === '⇒' }]
    return /^(?! )[^→⇒]*$/.test(line) ? [] : [{ path: `cannot read '${line.trim()}' of ${title}`, crosses: true }]
  })
}

const imports: readonly Import[] = readImports()

function readImports(): readonly Import[] {
  const folder = join(repository, 'src')
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map(name => name.replaceAll('\\', '/'))
  const sources = new Map<string, string>()
  for (const name of names.filter(each => /\.tsx?$/.test(each))) {
    const text = readFileSync(join(folder, name), 'utf8')
    // AssemblyScript imports without an extension.
    sources.set(name, text.replace(/(from '[^']*\.as)'/g, "$1.js'"))
  }
  return importsOf(sources)
}
