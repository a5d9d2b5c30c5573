// The package as npm packs it: its files, its exports, and workers that are whole.
import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { rolldown } from 'rolldown'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const execute = promisify(execFile)
const root = fileURLToPath(new URL('../../..', import.meta.url))
const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm'

/** Runs a program and gives its stdout. npm is a script on Windows, which only a shell starts. */
async function run(file: string, args: readonly string[], cwd: string): Promise<string> {
  return (await execute(file, args, { cwd, shell: file.endsWith('.cmd') })).stdout
}

/** Packages that modules reach by what they import, and by what those packages depend on. */
function importedPackages(entries: readonly string[]): Set<string> {
  const packages = new Set<string>()
  const seen = new Set<string>()
  const addPackage = (name: string) => {
    if (packages.has(name)) return
    packages.add(name)
    const { dependencies = {} } = JSON.parse(readFileSync(join(root, 'node_modules', name, 'package.json'), 'utf8'))
    // KaTeX's own command line is no part of the page.
    const others = Object.keys(dependencies).filter(dependency => name !== 'katex' || dependency !== 'commander')
    for (const dependency of others) addPackage(dependency)
  }
  const visit = (file: string) => {
    // What only Node reaches is left out of bundles.
    if (seen.has(file) || /[\\/]node[A-Z]\w*\.js$/.test(file)) return
    seen.add(file)
    if (!/\.(js|tsx?)$/.test(file)) return
    const text = readFileSync(file, 'utf8')
    for (const [, how, name] of text.matchAll(/(\bfrom|\bimport\(?|new URL\()\s*['"]([^'"]+)['"]/g)) {
      if (name.startsWith('#moeflux/')) visit(join(root, 'dist', name.slice('#moeflux/'.length)))
      else if (name.startsWith('.')) {
        const path = join(dirname(file), name)
        const sources = [path, path.replace(/\.js$/, '.ts'), path.replace(/\.js$/, '.tsx')]
        const source = sources.find(source => existsSync(source))
        if (source !== undefined) visit(source)
      } else if (!how.startsWith('new') && /^(@[\w.-]+\/)?[\w.-]+(\/|$)/.test(name)) {
        addPackage(/^(@[^/]+\/)?[^/]+/.exec(name)?.[0] as string)
      }
    }
  }
  for (const entry of entries) visit(join(root, entry))
  return packages
}

interface Packed {
  readonly filename: string
  readonly size: number
  readonly unpackedSize: number
  readonly files: readonly { readonly path: string }[]
}

describe('the package as users get it', () => {
  let folder: string
  let packed: Packed

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'moeflux-package-'))
    // Scripts stay off: the build that the other tests run on must not be made anew beneath them.
    packed = JSON.parse(await run(npm, ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], root))[0]
    await writeFile(join(folder, 'package.json'), '{ "name": "consumer", "private": true, "type": "module" }\n')
    // Without optional dependencies: the wasm and reference backends need nothing of Dawn.
    const options = ['--omit=optional', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
    await run(npm, ['install', ...options, join(folder, packed.filename)], folder)
  }, 120_000)

  afterAll(() => rm(folder, { recursive: true, force: true }))

  test('holds the build, pages for users and one copy of the demo model, no sources and no tests', () => {
    const paths = packed.files.map(file => file.path)
    const wanted = /^(dist\/|docs\/[\w-]+\.(md|svg)$|docs\/images\/|(package\.json|(README|CHANGELOG)\.md|LICENSE)$)/
    expect(paths.filter(path => !wanted.test(path))).toEqual([])
    expect(paths.filter(path => /\.safetensors$|\.tsbuildinfo$|\.test\./.test(path))).toEqual([])
    expect(paths.filter(path => path.endsWith('/model_weights.bin'))).toHaveLength(1)
    expect(packed.size).toBeLessThan(26e6)
    expect(packed.unpackedSize).toBeLessThan(42e6)
  })

  test('has pages whose links and pictures travel with it, or are addresses', () => {
    const paths = packed.files.map(file => file.path)
    const pages = paths.filter(path => path.endsWith('.md') && !path.startsWith('dist/'))
    expect(pages).toEqual(expect.arrayContaining(['README.md', 'docs/cli.md', 'docs/install.md']))
    const dead = pages.flatMap(page => {
      const text = readFileSync(join(folder, 'node_modules', 'moeflux', page), 'utf8')
      const links = [...text.matchAll(/\]\(([^)\s]+)|\b(?:src|srcset|href)="([^"\s]+)/g)].map(([, a, b]) => a ?? b)
      const relative = links.filter(link => !/^(https?:|#)/.test(link))
      const missing = relative.filter(link => !paths.includes(posix.join(posix.dirname(page), link.split('#')[0])))
      return missing.map(link => `${page}: ${link}`)
    })
    expect(dead).toEqual([])
  })

  test('runs nothing while it is installed, and says where it comes from', () => {
    const { scripts, ...meta } = JSON.parse(
      readFileSync(join(folder, 'node_modules', 'moeflux', 'package.json'), 'utf8'),
    )
    const hooks = ['preinstall', 'install', 'postinstall', 'prepublish', 'prepare']
    expect(hooks.filter(name => name in scripts)).toEqual([])
    const home = 'https://github.com/moeflux/moeflux'
    expect(meta).toMatchObject({
      homepage: `${home}#readme`,
      repository: { type: 'git', url: `git+${home}.git` },
      bugs: { url: `${home}/issues` },
    })
  })

  test('brings the licences of all that its bundles hold, and so does the site that it writes', async () => {
    expect(packed.files.map(file => file.path)).toContain('dist/THIRD-PARTY-LICENSES.txt')
    const installed = join(folder, 'node_modules', 'moeflux', 'dist')
    const text = await readFile(join(installed, 'THIRD-PARTY-LICENSES.txt'), 'utf8')
    // Found by following imports, without the bundler that the list is made from.
    const workers = ['engineWorker', 'computeWorker', 'textWorker', 'grammarWorker']
    const bundled = importedPackages([...workers.map(name => `dist/apps/browser/${name}.js`), 'src/apps/web/main.tsx'])
    expect([...bundled]).toEqual(expect.arrayContaining(['@huggingface/jinja', 'marked', '@preact/signals-core']))
    for (const name of bundled) {
      const home = join(root, 'node_modules', name)
      const { version, license } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'))
      expect(text).toContain(`\n${name} ${version}\n${license}\n`)
      const file = readdirSync(home).find(file => /^licen[cs]e(\.(md|txt))?$/i.test(file)) as string
      const licence = readFileSync(join(home, file), 'utf8')
      expect(text).toContain(licence.replaceAll('\r\n', '\n').trim())
    }
    const site = join(folder, 'site')
    await run(process.execPath, [join(installed, 'apps', 'cli', 'main.js'), 'web', '--out', site], folder)
    expect(await readFile(join(site, 'THIRD-PARTY-LICENSES.txt'), 'utf8')).toBe(text)
  })

  test('tells a story', async () => {
    const moeflux = join(folder, 'node_modules', 'moeflux', 'dist', 'apps', 'cli', 'main.js')
    const args = ['run', '--seed', '1', '--max-tokens', '24', 'Tell me a story about a little dog']
    const stdout = await run(process.execPath, [moeflux, ...args], folder)
    expect(stdout.split(/\s+/).length).toBeGreaterThan(10)
    expect((await readdir(join(folder, 'node_modules', '.bin'))).map(name => name.split('.')[0])).toContain('moeflux')
  })

  test('is imported by its name', async () => {
    await writeFile(
      join(folder, 'use.mjs'),
      `import { demoModelPath, MoefluxError, openModel } from 'moeflux'
       const model = await openModel(demoModelPath(), { backend: 'reference' })
       const context = model.createContext()
       const logits = await context.evalPrompt([1, 2, 3])
       context.close()
       await model.close()
       const refused = await openModel('nowhere').catch(error => error instanceof MoefluxError && error.code)
       console.log(JSON.stringify({ logits: logits.length, refused }))`,
    )
    const stdout = await run(process.execPath, ['use.mjs'], folder)
    expect(JSON.parse(stdout)).toEqual({ logits: 8192, refused: 'MODEL_NOT_FOUND' })
  })

  test('has types that resolve for a strict NodeNext consumer', async () => {
    await writeFile(
      join(folder, 'consumer.ts'),
      `import { type Context, demoModelPath, MoefluxError, type Model, openModel } from 'moeflux'
       export async function evaluate(tokens: number[]): Promise<Float32Array | null> {
         const model: Model = await openModel(demoModelPath(), { backend: 'wasm', expertMemory: '1GB' })
         const context: Context = model.createContext({ maxCheckpoints: 2 })
         try {
           return await context.evalPrompt(tokens)
         } catch (error) {
           if (error instanceof MoefluxError) console.error(error.code)
           throw error
         }
       }
       // @ts-expect-error: an unknown backend must not compile
       export const wrong = openModel('x', { backend: 'abacus' })
      `,
    )
    const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')
    const flags = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022', '--skipLibCheck', 'false']
    const types = ['--types', 'node', '--typeRoots', join(root, 'node_modules', '@types')]
    await run(process.execPath, [tsc, ...flags, ...types, 'consumer.ts'], folder)
  })

  test.each([
    [
      'of Node, without the types of pages',
      'es2022',
      ['--types', 'node', '--typeRoots', join(root, 'node_modules/@types')],
    ],
    ['that has no types of Node', 'es2022,dom', []],
  ])('has types that compile in a project %s', async (_, lib, types) => {
    await writeFile(
      join(folder, 'plain.ts'),
      `import { openModel, pullModel } from 'moeflux'
       import { openModel as openInTab } from 'moeflux/browser'
       import { serve } from 'moeflux/server'
       export const all = [openModel, pullModel, openInTab, serve]
      `,
    )
    const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')
    const flags = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022', '--skipLibCheck', 'false']
    const checked = run(process.execPath, [tsc, ...flags, '--lib', lib, ...types, 'plain.ts'], folder)
    expect(await checked.catch(({ stdout }) => stdout)).toBe('')
  })

  test('says what to do where a bundler took it in', async () => {
    await writeFile(
      join(folder, 'bundled.js'),
      `import { demoModelPath, openModel } from 'moeflux'
       const of = async promise => (await promise.catch(error => error)).message
       export const messages = [await of(openModel('anything')), await of((async () => demoModelPath())())]
       console.log(JSON.stringify(messages))`,
    )
    const bundle = await rolldown({
      input: join(folder, 'bundled.js'),
      platform: 'node',
      external: /^(webgpu|ioredis|aws4fetch)$/,
    })
    await bundle.write({ dir: join(folder, 'bundle') })
    await bundle.close()
    const messages = JSON.parse(await run(process.execPath, [join(folder, 'bundle', 'bundled.js')], folder))
    expect(messages).toHaveLength(2)
    for (const message of messages) expect(message).toMatch(/^moeflux was bundled, .*esbuild --external:moeflux/)
  })
})
