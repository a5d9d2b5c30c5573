// The picture of the rooms in docs/dev/architecture.md, held against the imports of every file, types
// too. A file imports from its own room and from rooms before it; apps come in by a door.
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { expect, test } from 'vitest'
import { cyclesIn, type Import, importsOf, loadedWith } from './support/importGraph.js'
import { repository } from './support/models/packedFiles.js'

/** The rooms that files of a room may import from, besides their own, in the order of the picture. */
const BEFORE: Readonly<Record<string, readonly string[]>> = {
  base: [],
  model: ['base'],
  files: ['base', 'model'],
  experts: ['base', 'files'],
  backends: ['base', 'model'],
  gpu: ['base', 'model', 'files', 'backends'],
  ops: ['base', 'model', 'files', 'backends', 'gpu'],
  'backends/reference': ['base', 'model', 'files', 'experts', 'backends', 'ops'],
  'backends/wasm': ['base', 'model', 'files', 'experts', 'backends', 'ops'],
  'backends/webgpu': ['base', 'model', 'files', 'experts', 'backends', 'gpu', 'ops', 'backends/wasm'],
  engine: ['base', 'model', 'files', 'backends'],
  text: ['base', 'model', 'files'],
  grammar: ['base', 'text'],
  stores: ['base', 'model', 'files', 'backends', 'engine'],
  chat: ['base', 'model', 'files', 'backends', 'engine', 'text', 'grammar', 'stores'],
  'apps/ai': ['base'],
  'apps/browser': ['base', 'model', 'files', 'experts', 'backends', 'engine', 'text', 'grammar', 'chat'],
  'apps/server': ['base'],
  'apps/cli': ['base'],
  'apps/web': [],
  lab: ['base', 'model', 'files', 'experts', 'backends', 'engine', 'text', 'apps/cli'],
}

/** Files at the top of `src`: the entries of the package. */
const DOORS = ['index.ts', 'internal.ts', 'browser.ts', 'ai.ts']

/** What rooms may import besides: doors, and files of other rooms that are entries themselves. */
const ENTRIES: Readonly<Record<string, readonly string[]>> = {
  'apps/ai': ['index.ts'],
  'apps/server': ['index.ts', 'internal.ts'],
  'apps/cli': ['index.ts', 'internal.ts', 'apps/server/serve.ts', 'apps/server/previewSite.ts'],
  'apps/web': ['browser.ts', 'apps/browser/page.ts'],
  lab: ['index.ts', 'internal.ts'],
}

/** The one place each where a name is given to who can do something with it. */
const CHOOSERS: Readonly<Record<string, readonly string[]>> = {
  'engine/chooseBackend.ts': ['backends/reference', 'backends/wasm', 'backends/webgpu'],
  'engine/openEngine.ts': ['backends/wasm'],
  'apps/browser/*': ['backends/wasm'],
  'apps/cli/program.ts': ['lab'],
}

test('every file imports from its own room, from rooms before it, or through a door', () => {
  const imports = importsHere()
  expect(imports.length).toBeGreaterThan(2000)
  expect(brokenRules(imports)).toEqual([])
})

test('a room comes after those that it may import from', () => {
  const order = Object.keys(BEFORE)
  const later = order.flatMap((room, i) => BEFORE[room].filter(other => order.indexOf(other) >= i))
  expect(later).toEqual([])
})

test('the picture in docs/dev/architecture.md shows these rooms in this order, and what they may import', () => {
  const page = readFileSync(join(repository, 'docs/dev/architecture.md'), 'utf8')
  const picture = /^```rooms\n([^`]*)```/m.exec(page)?.[1] ?? ''
  const shown = [...picture.matchAll(/^(\S+) .*\n +← (.*)$/gm)].map(([, room, from]) => [room, from])
  expect(shown).toEqual(Object.entries(BEFORE).map(([room, from]) => [room, from.join(' ') || 'nothing']))
})

test('no files import one another in a circle, not even for types', () => {
  expect(cyclesIn(importsHere())).toEqual([])
})

test('the help of the commands needs nothing of the engine', () => {
  const loaded = [...loadedWith('apps/cli/program.ts', importsHere())]
  expect(loaded.filter(file => !/^(base|apps\/cli|lab\/commands)\//.test(file))).toEqual([])
})

test('the public surface has at most 60 names besides the errors, on one screen', () => {
  const door = sources.get('index.ts') as string
  const names = [...door.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, list]) => list.split(','))
  expect(names.filter(name => name.trim() !== '').length).toBeLessThanOrEqual(60)
  expect(door.split('\n').length).toBeLessThanOrEqual(60)
  const others = [...door.matchAll(/^export \* from '([^']+)'/gm)].map(([, file]) => file)
  expect(others.filter(file => !/^\.\/base\/\w*[eE]rrors\.js$/.test(file))).toEqual([])
})

test('no folder has more than 45 files, and none of webgpu more than 15', () => {
  const sizes = new Map<string, number>()
  for (const top of ['src', 'test', 'scripts']) {
    for (const entry of readdirSync(join(repository, top), { recursive: true, withFileTypes: true })) {
      const folder = relative(repository, entry.parentPath).replaceAll('\\', '/')
      if (entry.isFile() && !folder.startsWith('test/data')) sizes.set(folder, (sizes.get(folder) ?? 0) + 1)
    }
  }
  const limit = (folder: string) => (folder.startsWith('src/backends/webgpu') ? 15 : 45)
  expect([...sizes].filter(([folder, size]) => size > limit(folder))).toEqual([])
})

test.each([
  ['reaches back', 'model/config.ts', "import { openModel } from '../chat/openModel.js'"],
  ['reaches back for a type', 'experts/slotLife.ts', "import type { Context } from '../engine/context.js'"],
  ['reaches back at run time', 'text/sampling/sampler.ts', "const late = await import('../../chat/session.js')"],
  ['is of base and needs a room', 'base/heap.ts', "import type { ModelConfig } from '../model/config.js'"],
  ['knows a backend', 'backends/backend.ts', "import type { WasmPlatform } from './wasm/platform.js'"],
  ['knows a device', 'backends/wasm/wasmBackend.ts', "import { GpuDevice } from '../../gpu/device/gpuDevice.js'"],
  ['is a reference with a device', 'ops/rope/reference.ts', "import { Op } from '../../gpu/device/op.js'"],
  ['calls a shader', 'backends/reference/forward.ts', "import { embed } from '../../ops/embed/embed.gpu.js'"],
  ['takes kernels for code', 'backends/wasm/kernels.ts', "import { embed } from '../../ops/kernels.as'"],
  ['takes code for a kernel', 'ops/rope/rope.as.ts', "import { ropeFrequencies } from '../../model/ropeFrequencies'"],
  ['takes the lab', 'apps/cli/doctor.ts', "import { runBench } from '../../lab/bench/runBench.js'"],
  ['reaches past the door', 'apps/cli/format.ts', "import { EngineModel } from '../../engine/model.js'"],
  ['reaches past the door for a type', 'apps/server/app.ts', "import type { Session } from '../../chat/session.js'"],
  ['takes the door from inside', 'engine/model.ts', "export { openModel } from '../index.js'"],
])('a file that %s is found', (_what, file, line) => {
  expect(brokenRules(importsWith(file, line))).toHaveLength(1)
})

test('a circle of types is found', () => {
  const imports = importsWith('model/layers.ts', "import type { ModelConfig } from './config.js'")
  expect(cyclesIn(imports).flat()).toContain('model/layers.ts')
})

test('members are private by the same word, and constants that are plain values are in upper case', () => {
  expect(otherHands(new Map([...sources].filter(([file]) => !file.endsWith('.as.ts'))))).toEqual([])
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
  if (!isForBackend(from, to)) return false
  if (room === other) return true
  // A door leads into every room; `ai` and `browser` are doors of their rooms.
  if (DOORS.includes(room)) return other !== 'lab' && !/^apps\/(cli|server|web)$/.test(other)
  if ((CHOOSERS[from] ?? CHOOSERS[`${room}/*`])?.includes(other)) return true
  return (ENTRIES[room] ?? []).includes(to) || (BEFORE[room] ?? []).includes(other)
}

/** Files of an operation for one backend are for that backend: kernels, host sides of shaders, and plain loops. */
function isForBackend(from: string, to: string): boolean {
  const [user, used] = [endingOf(from), endingOf(to)]
  if (user === 'as' || used === 'as') return user === used
  if (used === 'gpu') return user === 'gpu' || from.startsWith('backends/webgpu/')
  return user !== 'reference' || /^(base|model|ops)\//.test(to)
}

/** What a file of an operation is for; null: none of an operation, or nothing said. */
function endingOf(file: string): string | null {
  return /^ops\/.*?\b(as|gpu|reference)\.ts$/.exec(file)?.[1] ?? (file.endsWith('.as.ts') ? 'as' : null)
}

/** The folder of a file, of backends and apps the one inside; its name for files that are in none. */
function roomOf(file: string): string {
  const [first, second, third] = file.split('/')
  return ['backends', 'apps'].includes(first) && third !== undefined ? `${first}/${second}` : first
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
    .filter(name => /\.tsx?$/.test(name) && !/\.generated\.|\.d\.ts$/.test(name))
  return new Map(names.map(name => [name, readFileSync(join(folder, name), 'utf8')]))
}
