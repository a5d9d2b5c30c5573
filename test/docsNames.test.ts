// Documents name files by which readers find their way: each of them must be there.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { repository } from './support/models/packedFiles.js'

const FOLDERS = ['src', 'test', 'scripts', 'docs', 'examples']
const NAME = /`(\w[\w./-]*\.(?:tsx?|wgsl|mjs|md))`/g

const documents = ['README.md', 'CONTRIBUTING.md', ...filesIn('docs').filter(name => name.endsWith('.md'))]

test('every file that a document names exists', () => {
  const known = [...FOLDERS.flatMap(filesIn), ...documents].map(name => `/${name}`)
  const missing = documents.flatMap(document => {
    const text = readFileSync(join(repository, document), 'utf8')
    const names = [...text.matchAll(NAME)].map(([, name]) => name)
    return names.filter(name => !known.some(file => file.endsWith(`/${name}`))).map(name => `${document}: ${name}`)
  })
  expect(missing).toEqual([])
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
    [...text.matchAll(/\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)/g)].flatMap(([link, path, place]) => {
      const target = path === '' ? name : join(dirname(name), path)
      const headings = [...(texts.get(target)?.matchAll(/^#+ (.*)$/gm) ?? [])].map(([, heading]) => anchor(heading))
      const isThere = existsSync(join(repository, target)) && (place === undefined || headings.includes(place))
      return isThere ? [] : [`${name}: ${link}`]
    }),
  )
  expect(broken).toEqual([])
})

/** Paths of the files below a folder, with slashes. */
function filesIn(folder: string): string[] {
  const names = readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
  return names.map(name => `${folder}/${name}`.replaceAll('\\', '/'))
}
