// The command of the package, dist/apps/cli/main.js: its entry and all of ours that it may load, in one file for what it always
// needs and others beside it for what a command asks for later. To find and read some three hundred modules one by one took
// half of the time that `moeflux list` took. Libraries stay where npm installs them.
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'
import { isLibrary } from './libraries.mjs'
import { notePackages, packagesOf } from './thirdParty.mjs'
import { writeChanged } from './writeChanged.mjs'

const folder = join(dirname(fileURLToPath(import.meta.url)), '../dist/apps/cli')
const PARTS = 'parts'

/** Workers, kernels and the page are found from the file that asks for them: it says where it was, not where it is now. */
const ownPlaces = {
  name: 'own-places',
  transform(code, id) {
    if (!code.includes('import.meta.url')) return null
    const place = JSON.stringify(relative(join(folder, PARTS), id).replaceAll('\\', '/'))
    return { code: code.replaceAll('import.meta.url', `new URL(${place}, import.meta.url).href`), map: null }
  },
}

export async function bundleCommand() {
  const bundle = await rolldown({
    input: join(folder, 'entry.js'),
    platform: 'node',
    external: isLibrary,
    plugins: [ownPlaces],
  })
  const { output } = await bundle.generate({
    format: 'es',
    // All of them in one folder, so that each finds the others' places alike.
    entryFileNames: `${PARTS}/[name].js`,
    chunkFileNames: `${PARTS}/[name].js`,
  })
  await bundle.close()
  mkdirSync(join(folder, PARTS), { recursive: true })
  for (const { fileName, code } of output) writeChanged(join(folder, fileName), code)
  const made = new Set(output.map(({ fileName }) => fileName))
  for (const name of readdirSync(join(folder, PARTS))) {
    if (!made.has(`${PARTS}/${name}`)) rmSync(join(folder, PARTS, name))
  }
  const main = join(folder, 'main.js')
  writeChanged(main, start())
  chmodSync(main, 0o755)
  notePackages('command', packagesOf(output))
}

/** In syntax that old Nodes read, too: the entry's own imports would fail there before a line of it runs. */
function start() {
  const { engines } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  const least = /\d+/.exec(engines.node)[0]
  return `#!/usr/bin/env node
var version = process.versions.node
if (parseInt(version, 10) < ${least}) {
  console.error('error: moeflux needs Node ${least} or newer, and this is Node ' + version + ': see https://nodejs.org')
  process.exitCode = 1
} else import(${JSON.stringify(`./${PARTS}/entry.js`)})
`
}
