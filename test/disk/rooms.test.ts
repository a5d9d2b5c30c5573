// The picture of the rooms in docs/architecture.md, held against the imports of every file, types too: bytes at rest come first,
// people last. A file imports from its own room and from rooms before it; people's rooms come in by a door.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { cyclesIn, type Import, importsOf, loadedWith } from '../support/importGraph.js'
import { repository } from '../support/packedFiles.js'

/** The rooms that files of a room may import from, besides their own. */
const BEFORE: Readonly<Record<string, readonly string[]>> = {
  model: [],
  storage: ['model'],
  gguf: ['model', 'storage'],
  hub: ['model', 'storage', 'gguf'],
  remote: ['storage'],
  experts: ['storage'],
  compute: ['model', 'storage', 'experts'],
  'compute/reference': ['model', 'storage', 'experts', 'compute'],
  'compute/wasm': ['model', 'storage', 'experts', 'compute', 'compute/reference'],
  'compute/webgpu': ['model', 'storage', 'experts', 'compute', 'compute/reference', 'compute/wasm'],
  engine: ['model', 'storage', 'remote', 'experts', 'compute', 'compute/wasm'],
  text: ['model', 'storage'],
  constrain: ['text'],
  states: ['model', 'storage', 'remote', 'compute', 'engine'],
  session: ['model', 'storage', 'compute', 'engine', 'text', 'constrain', 'states'],
  bench: ['model', 'storage', 'experts', 'compute', 'engine', 'text'],
  browser: ['model', 'storage', 'experts', 'compute', 'compute/wasm', 'engine', 'text', 'constrain', 'session'],
  ai: [],
  server: [],
  cli: [],
  web: [],
}

/** What people's rooms may import of others: doors, and nothing behind them. */
const DOORS: Readonly<Record<string, readonly string[]>> = {
  ai: ['index.ts'],
  server: ['index.ts', 'serving.ts'],
  cli: ['index.ts', 'internal.ts', 'server/serve.ts', 'server/previewSite.ts'],
  web: ['browser/index.ts', 'browser/page.ts'],
}

/** Small files that everybody may import, since they themselves load errors at most. */
const ANYBODYS = [
  'errors.ts',
  'compute/plannedTokens.ts',
  'model/byteSize.ts',
  'model/duration.ts',
  'model/presetNames.ts',
  'storage/regularFile.ts',
]

/** The one place each where a name is given to who can do something with it. */
const CHOOSERS: Readonly<Record<string, readonly string[]>> = {
  'storage/openSource.ts': ['gguf'],
  'compute/chooseBackend.ts': ['compute/reference', 'compute/wasm', 'compute/webgpu'],
}

test('every file imports from its own room, from rooms before it, or through a door', () => {
  const imports = importsHere()
  expect(imports.length).toBeGreaterThan(2000)
  expect(brokenRules(imports)).toEqual([])
})

test('no files import one another in a circle, not even for types', () => {
  expect(cyclesIn(importsHere())).toEqual([])
})

test('what everybody may import loads errors at most', () => {
  const imports = importsHere()
  const outside = imports.filter(({ from, to }) => ANYBODYS.includes(from) && to !== 'errors.ts')
  expect(outside).toEqual([])
})

test('the help of the commands needs nothing of the engine', () => {
  const loaded = [...loadedWith('cli/program.ts', importsHere())]
  expect(loaded.filter(file => roomOf(file) !== 'cli' && !ANYBODYS.includes(file))).toEqual([])
})

test.each([
  ['reaches back', 'model/config.ts', "import { openModel } from '../session/openModel.js'"],
  ['reaches back for a type', 'experts/slotLife.ts', "import type { Context } from '../engine/context.js'"],
  ['reaches back at run time', 'text/sampler.ts', "const late = await import('../session/session.js')"],
  ['knows a backend', 'compute/backend.ts', "import type { WasmHost } from './wasm/host.js'"],
  ['reaches past the door', 'cli/format.ts', "import { EngineModel } from '../engine/model.js'"],
  ['reaches past the door for a type', 'server/app.ts', "import type { Session } from '../session/session.js'"],
  ['takes the door from inside', 'engine/model.ts', "export { openModel } from '../index.js'"],
])('a file that %s is found', (_what, file, line) => {
  expect(brokenRules(importsWith(file, line))).toHaveLength(1)
})

test('a circle of types is found', () => {
  const imports = importsWith('model/layers.ts', "import type { ModelConfig } from './config.js'")
  expect(cyclesIn(imports).flat()).toContain('model/layers.ts')
})

test('members are private by the same word, and constants that are plain values are in upper case', () => {
  expect(otherHands(sources)).toEqual([])
  const other = ['class A {', '  readonly #b = 1', '}', 'export const mostBytes = 2 << 3 // why', 'const c = make(4)']
  expect(otherHands(new Map([['a.ts', other.join('\n')]]))).toEqual(['a.ts: #b', 'a.ts: mostBytes'])
})

/** Names that are written another way than CONTRIBUTING.md says. */
function otherHands(texts: ReadonlyMap<string, string>): string[] {
  const value = String.raw`(?:-?[\d_.]+(?:e-?\d+)?|0x[0-9a-f_]+|'[^'\n]*')`
  const values = String.raw`(?:${value}(?: (?:\*\*|<<|[*/+-]) ${value})*|\[${value}(?:, ${value})*\](?: as const)?)`
  const member = /^ +(?:(?:static|readonly|async|get|set) )*(#\w+)/gm
  const constant = new RegExp(String.raw`^(?:export )?const ([a-z]\w*)(?:: [^=\n]+)? = ${values}\s*(?:\/\/.*)?$`, 'gm')
  return [...texts].flatMap(([file, text]) => {
    return [member, constant].flatMap(rule => [...text.matchAll(rule)].map(([, name]) => `${file}: ${name}`))
  })
}

function brokenRules(imports: readonly Import[]): string[] {
  return imports.filter(each => !isAllowed(each)).map(({ from, to }) => `${from} imports ${to}`)
}

function isAllowed({ from, to }: Import): boolean {
  const [room, other] = [roomOf(from), roomOf(to)]
  if (room === other || ANYBODYS.includes(to)) return true
  // A door leads into every room but those of people.
  if (['index.ts', 'internal.ts', 'serving.ts'].includes(room)) return !(other in DOORS)
  if (CHOOSERS[from]?.includes(other)) return true
  return (DOORS[room] ?? []).includes(to) || BEFORE[room].includes(other)
}

/** The folder of a file, of backends the one inside `compute`; its name for files that are in none. */
function roomOf(file: string): string {
  const [first, second, third] = file.split('/')
  return first === 'compute' && third !== undefined ? `${first}/${second}` : first
}

const sources = readSources()
let known: readonly Import[] | null = null

function importsHere(): readonly Import[] {
  known ??= importsOf(sources)
  return known
}

/** As they would be with one more line in a file. */
function importsWith(file: string, line: string): readonly Import[] {
  if (!sources.has(file)) throw new Error(`there is no ${file}`)
  return [...importsHere(), ...importsOf(new Map([[file, line]]), sources)]
}

function readSources(): ReadonlyMap<string, string> {
  const folder = join(repository, 'src')
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map(name => name.replaceAll('\\', '/'))
    .filter(name => /\.tsx?$/.test(name) && !/\/assembly\/|\.generated\.|\.d\.ts$/.test(name))
  return new Map(names.map(name => [name, readFileSync(join(folder, name), 'utf8')]))
}
