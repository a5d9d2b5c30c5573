// Builds dist/ from nothing, by npm alone. Each step is a function; `node scripts/build.mjs ts` runs just that one.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundleCommand } from './bundleCommand.mjs'
import { bundleThreads } from './bundleThreads.mjs'
import { isNoted, LICENCES_NAME, licencesText, notePackages, packagesOf } from './thirdParty.mjs'
import { writeChanged } from './writeChanged.mjs'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const require = createRequire(import.meta.url)

const running = new Set()

/** Runs a program of its own. Resolves when it has ended well; when one has not, the others are ended, too. */
function node(...args) {
  return new Promise((resolve, reject) => {
    const program = spawn(process.execPath, args, { cwd: root, stdio: 'inherit' })
    running.add(program)
    program.once('error', reject)
    program.once('close', (code, signal) => {
      running.delete(program)
      if (code === 0) return resolve()
      for (const other of running) other.kill()
      reject(new Error(`${args[0]} ${code === null ? `was ended by ${signal}` : `failed with ${code}`}`))
    })
  })
}

/** Whether `output` is there and made after the last change of all `inputs`. */
function isNewer(output, inputs) {
  return existsSync(output) && inputs.every(input => statSync(input).mtimeMs < statSync(output).mtimeMs)
}

/** Compiles AssemblyScript; modules take addresses and sizes only: no runtime, no data segments. */
function assemble(source, outFile, ...options) {
  const asc = join(dirname(require.resolve('assemblyscript/package.json')), 'bin', 'asc.js')
  return node(
    ...[asc, source, '--outFile', outFile, '--runtime', 'stub', '--noAssert', '--optimizeLevel', '3'],
    ...['--shrinkLevel', '0', '--importMemory', '--noExportMemory', '--initialMemory', '1', ...options],
  )
}

/** Takes away what the compiler made of sources that are gone: tests must not find here what a clean build lacks. */
function removeOrphans() {
  const dist = join(root, 'dist')
  for (const file of readdirSync(dist, { recursive: true }).filter(file => file.endsWith('.d.ts'))) {
    const name = file.slice(0, -'.d.ts'.length)
    if (existsSync(join(root, 'src', `${name}.ts`))) continue
    for (const extension of ['.d.ts', '.js', '.js.map']) rmSync(join(dist, name + extension), { force: true })
  }
}

const sharedMemory = ['--enable', 'threads', '--sharedMemory', '--maximumMemory', '65536']

/** Entries of src/apps/browser that become workers, and what the workers are called. */
const browserWorkers = {
  engineWorker: 'engine',
  computeWorker: 'compute',
  textWorker: 'text',
  grammarWorker: 'grammar',
}

const steps = {
  /** The WGSL files as one module of strings by base name, so that Node and browsers find them alike. */
  wgsl() {
    const folder = join(root, 'src/ops')
    const files = readdirSync(folder, { recursive: true }).filter(name => name.endsWith('.wgsl'))
    const shaders = new Map(files.map(file => [basename(file, '.wgsl'), file]))
    if (shaders.size < files.length) throw new Error(`two shaders have the same name: ${files.sort().join(', ')}`)
    const entries = [...shaders.keys()].sort().map(name => {
      const text = readFileSync(join(folder, shaders.get(name)), 'utf8').replace(/\r\n/g, '\n')
      return `  ${name}: ${JSON.stringify(text)},\n`
    })
    const target = join(root, 'src/gpu/device/shaders.generated.ts')
    const module = `// Made by scripts/build.mjs from all .wgsl files.\nexport const shaders = {\n${entries.join('')}} as const\n`
    writeChanged(target, module)
  },
  /** The checksum's two modules, for shared and for plain memory, as text: every thread and worker has them at once. */
  async checksum() {
    const source = join(root, 'src/files/packed/blockHash.as.ts')
    const target = join(root, 'src/files/packed/blockHash.generated.ts')
    if (isNewer(target, [source, fileURLToPath(import.meta.url)])) return
    const folder = mkdtempSync(join(tmpdir(), 'moeflux-build-'))
    const entries = await Promise.all(
      Object.entries({ shared: sharedMemory, plain: [] }).map(async ([name, options]) => {
        const file = join(folder, `${name}.wasm`)
        await assemble(source, file, '--enable', 'simd', ...options)
        return `  ${name}: '${readFileSync(file).toString('base64')}',\n`
      }),
    )
    rmSync(folder, { recursive: true })
    const comment = '// Made by scripts/build.mjs from packed/blockHash.as.ts.'
    writeFileSync(target, `${comment}\nexport const blockHashModules = {\n${entries.join('')}} as const\n`)
  },
  /** The sources, compiled one by one, and threads and the command made of them. */
  async ts() {
    steps.wgsl()
    await steps.checksum()
    mkdirSync(join(root, 'dist'), { recursive: true })
    // An incremental build believes its notes and not the folder: without output they must go.
    if (!existsSync(join(root, 'dist/index.js'))) rmSync(join(root, 'dist/.tsbuildinfo'), { force: true })
    const typescript = dirname(require.resolve('typescript/package.json'))
    await node(join(typescript, 'bin', 'tsc'), '-p', 'tsconfig.json')
    removeOrphans()
    await bundleThreads()
    await bundleCommand()
  },
  async wasm() {
    const entry = join(root, 'src/ops/kernels.as.ts')
    const sources = readdirSync(dirname(entry), { recursive: true }).filter(name => name.endsWith('.as.ts'))
    const inputs = [...sources.map(name => join(dirname(entry), name)), fileURLToPath(import.meta.url)]
    const relaxed = ['--enable', 'relaxed-simd']
    const dots = isOn => ['--use', `DOT_PRODUCTS=${isOn ? 1 : 0}`]
    const builds = {
      baseline: dots(false),
      relaxed: [...relaxed, ...dots(false)],
      'dot-product': [...relaxed, ...dots(true)],
    }
    mkdirSync(join(root, 'dist/backends/wasm'), { recursive: true })
    await Promise.all(
      Object.entries(builds).map(async ([name, features]) => {
        const outFile = `dist/backends/wasm/kernels.${name}.wasm`
        if (isNewer(join(root, outFile), inputs)) return
        await assemble(entry, outFile, '--enable', 'simd', ...sharedMemory, ...features)
      }),
    )
  },
  /** The built-in model, packed by the converter of this very build. */
  demo() {
    return node(join(root, 'scripts/packDemo.mjs'))
  },
  /**
   * The workers of moeflux/browser, each one file beside its entry with all it imports: pages need no bundler for them,
   * and a page's own bundler finds nothing in them to split. What only Node reaches is left out.
   */
  async browser() {
    const { rolldown } = await import('rolldown')
    const folder = join(root, 'dist/apps/browser')
    const nodeOnly = /[\\/]node[A-Z]\w*\.js$/
    const leaveOutNode = {
      name: 'leave-out-node',
      load: id => (nodeOnly.test(id) ? 'export {}' : null),
      resolveId(source, importer) {
        if (source.startsWith('node:'))
          throw new Error(`${importer} needs ${source}, and is part of a browser's worker`)
        return null
      },
    }
    const chunks = []
    for (const [entry, name] of Object.entries(browserWorkers)) {
      const bundle = await rolldown({
        input: join(folder, `${entry}.js`),
        platform: 'browser',
        plugins: [leaveOutNode],
      })
      const { output } = await bundle.generate({ format: 'es', codeSplitting: false, minify: true })
      await bundle.close()
      writeChanged(join(folder, `${name}.worker.js`), output[0].code)
      chunks.push(...output)
    }
    notePackages('browser', packagesOf(chunks))
  },
  /** The web UI, bundled from its sources and from the compiled package. */
  web() {
    const folders = ['src/apps/web', 'dist'].map(name => join(root, name))
    const inputs = folders
      .flatMap(folder => readdirSync(folder, { recursive: true, withFileTypes: true }))
      .filter(entry => entry.isFile() && /\.(tsx?|css|html|svg|mjs|js|wasm|webmanifest)$/.test(entry.name))
      .map(entry => join(entry.parentPath, entry.name))
      .filter(file => !file.startsWith(join(root, 'dist/apps/web')) && !file.endsWith('.d.ts'))
    const lock = join(root, 'package-lock.json')
    const isNew = isNewer(join(root, 'dist/apps/web/index.html'), [...inputs, lock, fileURLToPath(import.meta.url)])
    if (isNew && isNoted('web')) return
    const vite = join(dirname(require.resolve('vite/package.json')), 'bin', 'vite.js')
    return node(vite, 'build', '--config', 'src/apps/web/vite.config.mjs')
  },
  /** The licences of all that was bundled: with the package, and with the site that `moeflux web` makes of it. */
  licences() {
    const text = licencesText()
    for (const folder of ['dist', 'dist/apps/web']) writeChanged(join(root, folder, LICENCES_NAME), text)
  },
}

/** Takes dist/ away; `npm pack` does so first, so that no stale file is published. Not part of a plain build. */
function clean() {
  rmSync(join(root, 'dist'), { recursive: true, force: true })
}

const wanted = process.argv.slice(2)
if (wanted[0] === 'clean') {
  wanted.shift()
  clean()
  if (wanted.length === 0) process.exit()
}
// The kernels take longest to compile, and nothing needs them before the built-in model is packed.
if (wanted.length === 0) {
  await Promise.all([steps.wasm(), steps.ts()])
  wanted.push('demo', 'browser', 'web', 'licences')
}
for (const name of wanted) {
  if (!(name in steps)) throw new Error(`no build step '${name}'; there are: ${Object.keys(steps).join(', ')}`)
  await steps[name]()
}
