// The documents against the program: flags, model names, variables, exports, routes, metrics, sizes, figures, messages. Each check
// also meets a planted error. docsNames.test.ts has files and links, samples.alone.test.ts the TypeScript samples.
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { threeDigits } from '#moeflux/apps/cli/format.js'
import { createProgram } from '#moeflux/apps/cli/program.js'
import { presetNames } from '#moeflux/base/defaults.js'
import { WELL_KNOWN_MODELS } from '#moeflux/model/wellKnownModels.js'
import { moeflux } from './apps/cli/moeflux.js'
import { startServer } from './apps/server/serverProcess.js'
import { repository, temporaryFolder } from './support/models/packedFiles.js'

const textOf = (name: string) => readFileSync(join(repository, name), 'utf8')
const filesIn = (folder: string) =>
  readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' }).map(name =>
    `${folder}/${name}`.replaceAll('\\', '/'),
  )

/** Pages for users; those of docs/dev are for developers. */
const pages = ['README.md', ...readdirSync(join(repository, 'docs')).map(name => `docs/${name}`)].filter(name =>
  name.endsWith('.md'),
)
const sources = filesIn('src').filter(name => /\.tsx?$/.test(name) && !/^src\/lab\/|\.generated\.|\.as\.ts$/.test(name))
const without = (all: Iterable<string>, known: Iterable<string>) => {
  const set = new Set(known)
  return [...new Set(all)].filter(each => !set.has(each))
}
const found = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(match => match.slice(1).find(Boolean)!)

// --- flags and names of models ---------------------------------------------------------------------------------------

const commands = new Map(
  createProgram().commands.map(command => {
    const flags = command.options.flatMap(({ short, long }) => [short, long]).filter(flag => flag !== undefined)
    return [command.name(), new Set([...flags, '-h', '--help'])] as const
  }),
)
/** Of other programs, and of programs in src/lab. */
const OTHER_FLAGS = ['--add-host', '--omit', '--save-dev', '--clients', '--long', '--total-queued-requests-metric']
const LLAMA_FLAGS = ['--mlock', '--no-mmap', '--n-cpu-moe', '--grammar-file', '--slots', '--slot-save-path']
const PICKER_FLAGS = ['--kv-cache-usage-percentage-metric']
const flagsOfOthers = [...OTHER_FLAGS, ...LLAMA_FLAGS, ...PICKER_FLAGS]

/** `moeflux COMMAND …` with a flag that this command does not have, and flags alone that no command has. */
function flagProblems(text: string): string[] {
  const problems: string[] = []
  for (const [, name, rest] of text.matchAll(/\bmoeflux ([a-z]+)\b([^\n`#|&]*)/g)) {
    const known = commands.get(name)
    const given = rest.replace(/"[^"]*"|'[^']*'/g, '').matchAll(/(?<=\s)(--[a-z][\w-]*|-[a-zA-Z])\b/g)
    for (const [, flag] of known === undefined ? [] : given) {
      if (!known?.has(flag)) problems.push(`moeflux ${name} has no ${flag}`)
    }
  }
  const all = [...commands.values()].flatMap(flags => [...flags])
  const alone = found(text, /`(--[a-z][\w-]*)[^`\n]*`/g)
  return [...problems, ...without(alone, [...all, ...flagsOfOthers]).map(flag => `no command has ${flag}`)]
}

const modelNames = [...WELL_KNOWN_MODELS.flatMap(({ names }) => [...names]), ...presetNames, 'demo']

/** Names behind `-m`, `pull` and `inspect` that are none; those in capitals stand for any, and paths and ids may be anything. */
function nameProblems(text: string): string[] {
  const named = found(text, /\bmoeflux [^\n`]*?(?:-m|--model|pull|inspect|rm|verify) ([\w.:/~*-]+)/g)
  const names = named.filter(name => /^[a-z]/.test(name) && !/[/~*]|\.gguf$/.test(name))
  return without(names, modelNames).map(name => `${name} is not a short name`)
}

describe('commands in documents', () => {
  test.each(pages)('%s has flags that there are, and names of models that there are', name => {
    expect([...flagProblems(textOf(name)), ...nameProblems(textOf(name))]).toEqual([])
  })

  test('are found wrong where they are', () => {
    const text = 'Type `moeflux pull --revison main qwen3.5-5b`, or `--colour`, or `moeflux run "--no" -x -m gpt-oss`.'
    const flags = ['moeflux pull has no --revison', 'moeflux run has no -x', 'no command has --colour']
    expect(flagProblems(text)).toEqual(flags)
    expect(nameProblems('moeflux run -m qwen3.5-5b "Hello", moeflux pull NAME')).toEqual([
      'qwen3.5-5b is not a short name',
    ])
  })

  test('have tables of flags and of models as the program has them', { timeout: 30_000 }, async () => {
    const script = join(repository, 'scripts/writeDocs.mjs')
    const { stderr } = await promisify(execFile)(process.execPath, [script, '--check']).catch(error => error)
    expect(stderr).toBe('')
  })

  test('call the tests as the README does', () => {
    const command = 'npm ci && npm test'
    expect(textOf('README.md')).toContain(`\n${command}\n`)
    expect(textOf('.ci/run').trimEnd().split('\n').at(-1)).toBe(command)
  })
})

// --- figures ----------------------------------------------------------------------------------------------------------

/** Cells of the rows of a Markdown table, without those of its head. */
function rowsOf(text: string, head: RegExp): string[][] {
  const lines = text.split('\n')
  const first = lines.findIndex(line => head.test(line)) + 2
  const end = lines.findIndex((line, i) => i >= first && !line.startsWith('|'))
  const cells = (line: string) => line.split('|').slice(1, -1)
  return lines.slice(first, end).map(line => cells(line).map(cell => cell.trim()))
}

test('the speeds in the README are those of inspect', { timeout: 60_000 }, async () => {
  const rows = rowsOf(textOf('README.md'), /^\| your machine /)
  expect(rows.length).toBeGreaterThan(4)
  const speedOf = async ([machine, model]: string[]) => {
    const [, memory, gpu] = /^(\d+) GB(?: of memory| and a GPU of (\d+) GB)?$/.exec(machine) ?? []
    const args = ['--memory', `${memory}GB`, '--read-speed', '2.5GB', '--compute-speed', '36GB', '--json']
    const name = /`(.*)`/.exec(model)?.[1] as string
    const preset = WELL_KNOWN_MODELS.find(({ names }) => names.includes(name))?.preset ?? name
    const { stdout } = await moeflux(['inspect', preset, ...args, ...(gpu === undefined ? [] : ['--gpu', `${gpu}GB`])])
    const { estimate, gpu: split } = JSON.parse(stdout)
    return `${threeDigits((split ?? estimate).tokensPerSecond)} tok/s`
  }
  const want = await Promise.all(rows.map(speedOf))
  expect(rows.map(([, , speed]) => speed.replace(/,.*/, ''))).toEqual(want)
})

test('the measured speeds in the README are in docs/performance.md', () => {
  const cells = rowsOf(textOf('README.md'), /^\| +\| moeflux \| llama\.cpp /).flatMap(([, ...numbers]) => numbers)
  expect(cells.length).toBeGreaterThan(20)
  const measured = new Set(textOf('docs/performance.md').match(/\d[\d,]*(?:\.\d+)?/g))
  expect(cells.filter(cell => cell !== '' && !measured.has(cell))).toEqual([])
})

/** Kilobytes, plain and gzipped. */
type Sizes = readonly [plain: number, gzipped: number | null]

function sizesOf(files: readonly string[]): Sizes {
  const bytes = files.map(name => readFileSync(join(repository, name)))
  const sum = (of: (file: Buffer) => number) => bytes.reduce((total, file) => total + of(file), 0) / 1000
  return [sum(file => file.length), sum(file => gzipSync(file, { level: 9 }).length)]
}

/** Documents may be a tenth off: what is bundled changes all the time. */
function isNear(told: Sizes, real: Sizes): boolean {
  return told.every((size, i) => size === null || Math.abs(size - (real[i] ?? 0)) <= 1 + 0.1 * (real[i] ?? 0))
}

function toldSizes([, plain, gzipped]: string[]): Sizes {
  const kilobytes = (cell: string) => Number(/^([\d,]+) KB/.exec(cell)?.[1].replaceAll(',', ''))
  return [kilobytes(plain), gzipped === '' ? null : kilobytes(gzipped)]
}

const shown = (name: string, sizes: Sizes) => `${name}: ${sizes.map(size => size && Math.round(size)).join(', ')} KB`

test('the sizes of files in docs/browser.md are those of the build', () => {
  const rows = rowsOf(textOf('docs/browser.md'), /^\| file below `dist\/`/)
  expect(rows.length).toBeGreaterThan(7)
  const wrong = rows.flatMap(row => {
    const files = found(row[0], /`([^`]+)`/g).map(name => `dist/${name}`)
    const real = sizesOf(files)
    return isNear(toldSizes(row), real) ? [] : [shown(row[0], real)]
  })
  expect(wrong).toEqual([])
})

test('the sizes of the page in docs/web.md are those of the build', () => {
  const assets = readdirSync(join(repository, 'dist/apps/web/assets'))
  const asset = (start: string, ends = /\.(js|css)$/) =>
    assets.filter(name => name.startsWith(start) && ends.test(name)).map(name => `dist/apps/web/assets/${name}`)
  const worker = textOf('dist/apps/web/sw.js').split('].map')[0]
  const kept = ['index.html', ...found(worker, /["'`]\.\/([^"'`]+)["'`]/g)].map(name => `dist/apps/web/${name}`)
  const files: Record<string, string[]> = {
    'page, chat': asset('index-'),
    'engine view': asset('engineView'),
    KaTeX: asset('katex'),
    'its fonts': asset('KaTeX_', /\.woff2$/),
    'engine in the tab': asset('engine.worker'),
    'all that the service worker': kept,
  }
  const rows = rowsOf(textOf('docs/web.md'), /^\| part +\| bytes/)
  expect(rows.length).toBe(Object.keys(files).length)
  const wrong = rows.flatMap(row => {
    const [, own] = Object.entries(files).find(([start]) => row[0].startsWith(start)) ?? ['', []]
    const real = sizesOf(own)
    return isNear(toldSizes(row), real) ? [] : [shown(row[0], real)]
  })
  expect(wrong).toEqual([])
})

test('a size that is a fifth off is found', () => {
  expect(isNear([750, 239], [749.8, 238.6])).toBe(true)
  expect(isNear([24, 7], [31, 10])).toBe(false)
  expect(isNear([750, 195], [750, 239])).toBe(false)
})

// --- what the program reads, exports and serves -----------------------------------------------------------------------

function readVariables(text: string): string[] {
  const direct = found(text, /\b(?:process\.env|environment)\.([A-Z][A-Z0-9_]+)/g)
  const lists = found(text, /\{([^{}]+)\} = (?:process\.env|environment)\b/g)
  return [...direct, ...lists.flatMap(list => found(list, /\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b/g))]
}

test('the table of variables has all that the program reads, and no others', () => {
  const read = sources.flatMap(name => readVariables(textOf(name)))
  expect(read).toContain('MOEFLUX_HOME')
  const told = rowsOf(textOf('docs/install.md'), /^\| variable \| is/).flatMap(([cell]) => found(cell, /`(\w+)`/g))
  expect([without(read, told), without(told, read)]).toEqual([[], []])
})

test('variables are found however they are read', () => {
  const code = 'const { VK_ICD: a, AWS_KEY } = environment\nprocess.env.TERM === environment.HF_TOKEN'
  expect(readVariables(code)).toEqual(['TERM', 'HF_TOKEN', 'VK_ICD', 'AWS_KEY'])
})

/** Names that a module of `dist` exports, types too. */
function exportsOf(file: string): string[] {
  const text = textOf(file).replace(/\/\*[\s\S]*?\*\//g, '')
  const lists = found(text, /export\s+(?:type\s+)?\{([^}]*)\}/g).flatMap(list => list.split(','))
  const listed = lists.map(
    name =>
      name
        .trim()
        .replace(/^type /, '')
        .split(' as ')
        .at(-1) as string,
  )
  const declared = found(text, /export (?:declare )?(?:abstract )?(?:const|function|class|interface|type) ([\w$]+)/g)
  const others = found(text, /export \* from '([^']+)'/g).flatMap(from =>
    exportsOf(join(dirname(file), from.replace(/\.js$/, '.d.ts'))),
  )
  return [...listed.filter(name => name !== ''), ...declared, ...others]
}

/** Names in the first column of the tables at the end of docs/api.md. */
function toldNames(text: string, door: string): string[] {
  return rowsOf(text, new RegExp(`^\\| of \`${door}\` \\|`)).flatMap(([cell]) => found(cell, /`(\w+)`/g))
}

test.each(['.', './server', './browser', './ai'])('docs/api.md names nothing that "%s" does not export', path => {
  const { types } = JSON.parse(textOf('package.json')).exports[path]
  const told = toldNames(textOf('docs/api.md'), `moeflux${path.slice(1)}`)
  expect(told.length).toBeGreaterThan(2)
  expect(without(told, exportsOf(types))).toEqual([])
})

test('a name that is not exported is found', () => {
  const text = '| of `moeflux/ai` | |\n| --- | --- |\n| `moeflux`, `createMoflux` | the provider |\n\n'
  expect(without(toldNames(text, 'moeflux/ai'), exportsOf('dist/ai.d.ts'))).toEqual(['createMoflux'])
})

const ROUTE = /(?<![\w.:])(\/(?:v1|api|hub|engine|models|health|ready|metrics)(?:\/[\w:./-]*\w)?)/g

/** Paths that handlers are registered for. */
function servedRoutes(): string[] {
  const server = sources.filter(name => name.startsWith('src/apps/server/'))
  const quoted = /['`](\/(?:v1|api|hub|engine|models|health|ready|metrics)(?:\/[\w:./-]*)?)(?:\{[^}]*\}|\*)?['`]/g
  return server.flatMap(name => found(textOf(name), quoted)).map(path => path.replace(/\/$/, ''))
}

function routeProblems(text: string): string[] {
  const [told, served] = [new Set(found(text, ROUTE)), servedRoutes()]
  const isTold = (path: string) => [...told].some(other => other === path || other.startsWith(`${path}/`))
  const isServed = (path: string) => served.some(other => other === path || path.startsWith(`${other}/`))
  return [
    ...without(
      served.filter(path => !isTold(path)),
      [],
    ).map(path => `${path} is served`),
    ...[...told].filter(path => !isServed(path)).map(path => `${path} is told`),
  ]
}

test('docs/server.md has the paths that the server has', () => {
  expect(servedRoutes().length).toBeGreaterThan(15)
  expect(routeProblems(textOf('docs/server.md'))).toEqual([])
})

test('a path too many and one that is missing are found', () => {
  const text = textOf('docs/server.md').replaceAll('/ready', '/v1/audio')
  expect(routeProblems(text)).toEqual(['/ready is served', '/v1/audio is told'])
})

const METRIC = /\b(moeflux_[a-z_]+|process_resident_memory_bytes)\b/g

test('the metrics of a server are in the documents, and no others', { timeout: 60_000 }, async () => {
  const server = await startServer([], { MOEFLUX_HOME: temporaryFolder() })
  const text = await (await fetch(`${server.url}/metrics`)).text()
  await server.stop()
  const served = found(text, /^# TYPE (\w+)/gm)
  expect(served.length).toBeGreaterThan(30)
  const told = pages.flatMap(name => found(textOf(name), METRIC))
  expect([without(served, told), without(told, served)]).toEqual([[], []])
})

// --- messages ---------------------------------------------------------------------------------------------------------

/** Headings in backticks before those of other programs; `…` stands for what differs. */
function toldMessages(text: string): string[] {
  return found(text.split(/^## Messages of other programs$/m)[0], /^### `(.*)`$/gm)
}

const printing = sources.map(textOf)

/** Whether one file has all parts of it. */
function canBePrinted(message: string): boolean {
  const parts = message.split('…').map(part => part.trim())
  return printing.some(text => parts.every(part => text.includes(part)))
}

test('the headings of docs/troubleshooting.md are messages of the program', () => {
  const told = toldMessages(textOf('docs/troubleshooting.md'))
  expect(told.length).toBeGreaterThan(20)
  expect(told.filter(message => !canBePrinted(message))).toEqual([])
})

test('a heading that nothing prints is found', () => {
  const text =
    '### `the port is in use`\n\n### `the port … is taken`\n\n## Messages of other programs\n\n### `ENOENT`\n'
  expect(toldMessages(text).filter(message => !canBePrinted(message))).toEqual(['the port … is taken'])
})
