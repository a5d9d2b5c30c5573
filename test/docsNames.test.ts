// Documents and comments name files by which readers find their way: each of them must be there.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { repository } from './support/models/packedFiles.js'

/** A file by the end of its path, or several by a pattern; none in quotes, and none with a part in angle brackets. */
const NAME = /(?<![\w./<>*'-])(?:\.{1,2}\/)*([\w*][\w./*-]*\.(?:tsx?|wgsl|mjs|md))\b/g
const COMMENT = /(?:^|\s)\/\/.*$|\/\*[\s\S]*?\*\//gm
/** A relative link, or one to a file of this repository. */
const LINK =
  /\]\((?:(https:\/\/github\.com\/moeflux\/moeflux\/(?:blob|tree)\/main\/)|(?!https?:))([^)\s#]*)(?:#([^)\s]*))?\)/g

/** Files of users, in samples of commands. */
const OF_USERS = ['notes.md', 'plan.md']

const documents = [
  ...['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'src/lab/peers/README.md'],
  ...filesIn('docs').filter(name => name.endsWith('.md')),
]
const sources = ['src', 'test', 'scripts']
  .flatMap(filesIn)
  .filter(name => /(?<!\.generated)\.(m?tsx?|mjs|wgsl)$/.test(name) && name !== 'test/docsNames.test.ts')
const files = [...new Set([...documents, ...['src', 'test', 'scripts', 'docs', 'examples'].flatMap(filesIn)])]

test('every file that a document names exists, and no other file has that name', () => {
  expect(documents.flatMap(name => problemsOfDocument(name, textOf(name)))).toEqual([])
})

test('every file that a comment names exists, and is another one', () => {
  expect(sources.length).toBeGreaterThan(1000)
  expect(sources.flatMap(name => problemsOfComments(name, textOf(name)))).toEqual([])
})

test.each([
  ['is gone', 'see `engine/gone.ts`', 'a.md: engine/gone.ts is not there'],
  ['is one of several', 'see `reference.ts`', 'a.md: reference.ts may be src/ops/activation/reference.ts, '],
  ['is a pattern that fits none', 'see ops/*/gone.as.ts', 'a.md: ops/*/gone.as.ts is not there'],
])('a name in a document that %s is found', (_what, text, problem) => {
  const problems = problemsOfDocument('a.md', text)
  expect(problems).toEqual([expect.stringContaining(problem)])
})

test('names in a document of all files of a pattern, of users, and with something left open are right', () => {
  const text = 'ops/*/reference.ts, ../engine/context.ts, `src/ops/<name>/<name>.as.ts`, moeflux run -f notes.md'
  expect(problemsOfDocument('a.md', text)).toEqual([])
})

test.each([
  ['is gone', 'engine/model.ts', '// Runs as scheduler.ts and gone.ts say.', ['gone.ts is not there']],
  [
    'is gone, in a block',
    'engine/model.ts',
    '/**\n * As ./wrong/context.ts has it.\n */',
    ['wrong/context.ts is not there'],
  ],
  ['is the file itself', 'src/engine/model.ts', 'a() // as in engine/model.ts', ['engine/model.ts is this very file']],
])('a name in a comment that %s is found', (_what, file, text, problems) => {
  expect(problemsOfComments(file, text)).toEqual(problems.map(each => `${file}: ${each}`))
})

test('names in code, in quotes, and in the command that runs a file are right', () => {
  const text = "open('gone.ts') // 'gone.md: no such file'\n//   node src/lab/soak/soak.mjs --minutes 2"
  expect(problemsOfComments('src/lab/soak/soak.mjs', text)).toEqual([])
})

test('the names that the glossary gives for words are in the code', () => {
  const glossary = /^## Words\n([\s\S]*?)^## /m.exec(textOf('docs/dev/architecture.md'))?.[1] ?? ''
  const cells = glossary.split('\n').flatMap(line => (line.startsWith('| ') ? (line.split('|').at(-2) ?? '') : []))
  const names = cells.flatMap(cell => [...cell.matchAll(/`(\w+)`/g)].map(([, name]) => name))
  expect(names.length).toBeGreaterThan(30)
  const code = sources.filter(name => name.startsWith('src/')).map(textOf)
  expect(names.filter(name => !code.some(text => new RegExp(`\\b${name}\\b`).test(text)))).toEqual([])
})

test.each([
  ['moeflux', 'index'],
  ['moeflux', 'base/errors'],
  ['moeflux', 'base/memoryErrors'],
  ['moeflux/server', 'apps/server/serve'],
  ['moeflux/browser', 'browser'],
  ['moeflux/ai', 'ai'],
])('docs/api.md names all that %s exports from %s.ts', (_, file) => {
  const source = readFileSync(join(repository, `src/${file}.ts`), 'utf8')
  const lists = [...source.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, list]) => list.split(','))
  const listed = lists.map(
    name =>
      name
        .trim()
        .replace(/^type /, '')
        .split(' as ')
        .at(-1) as string,
  )
  const declared = [...source.matchAll(/^export (?:async )?(?:class|function|const|interface|type) (\w+)/gm)]
  const names = [...listed.filter(name => name !== ''), ...declared.map(([, name]) => name)]
  expect(names.length).toBeGreaterThan(2)
  const text = readFileSync(join(repository, 'docs/api.md'), 'utf8')
  const told = new Set([...text.matchAll(/`(\w+)`/g)].map(([, name]) => name))
  expect(names.filter(name => !told.has(name))).toEqual([])
})

test('every link between documents leads to a file, and to a heading where it names one', () => {
  const texts = new Map(documents.map(name => [name, readFileSync(join(repository, name), 'utf8')]))
  const anchor = (heading: string) =>
    heading
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .trim()
      .replaceAll(' ', '-')
  const broken = [...texts].flatMap(([name, text]) =>
    [...text.matchAll(LINK)].flatMap(([link, home, path, place]) => {
      const target = home !== undefined ? path : path === '' ? name : join(dirname(name), path)
      const headings = [...(texts.get(target)?.matchAll(/^#+ (.*)$/gm) ?? [])].map(([, heading]) => anchor(heading))
      const isThere = existsSync(join(repository, target)) && (place === undefined || headings.includes(place))
      return isThere ? [] : [`${name}: ${link}`]
    }),
  )
  expect(broken).toEqual([])
})

function problemsOfDocument(document: string, text: string): string[] {
  const problems = new Set<string>()
  for (const name of namesIn(text)) {
    const named = filesNamed(name)
    if (OF_USERS.includes(name)) continue
    if (named.length === 0) problems.add(`${document}: ${name} is not there`)
    else if (named.length > 1 && !name.includes('*')) problems.add(`${document}: ${name} may be ${named.join(', ')}`)
  }
  return [...problems]
}

function problemsOfComments(file: string, text: string): string[] {
  const lines = (text.match(COMMENT) ?? []).flatMap(comment => comment.split('\n'))
  return lines.flatMap(line =>
    namesIn(line).flatMap(name => {
      const named = filesNamed(name)
      if (named.length === 0) return [`${file}: ${name} is not there`]
      const isItself = named.length === 1 && named[0] === file && !/\bnode /.test(line)
      return isItself ? [`${file}: ${name} is this very file`] : []
    }),
  )
}

function namesIn(text: string): string[] {
  return [...text.matchAll(NAME)].map(([, name]) => name)
}

/** By the end of their paths; of a pattern, `*` is part of a name. */
function filesNamed(name: string): string[] {
  const pattern = new RegExp(`(?:^|/)${name.replaceAll('.', '\\.').replaceAll('*', '[^/]*')}$`)
  return files.filter(file => pattern.test(file))
}

function textOf(file: string): string {
  return readFileSync(join(repository, file), 'utf8')
}

/** Paths of the files below a folder, with slashes. */
function filesIn(folder: string): string[] {
  const names = readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
  return names.map(name => `${folder}/${name}`.replaceAll('\\', '/'))
}
