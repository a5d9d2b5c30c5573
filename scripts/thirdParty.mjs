// Which libraries are part of the build's bundles, and their licences as one text. What a bundle holds is taken from the
// bundler, module by module; the bundles note it in dist/.bundled, because not every build makes all of them anew.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const notes = join(root, 'dist/.bundled')

export const LICENCES_NAME = 'THIRD-PARTY-LICENSES.txt'

/** The packages whose code is in the chunks of a bundle. */
export function packagesOf(chunks) {
  const packages = new Set()
  for (const { modules = {} } of chunks) {
    for (const [id, { renderedLength }] of Object.entries(modules)) {
      const name = renderedLength > 0 ? packageOf(id) : null
      if (name !== null) packages.add(name)
    }
  }
  return [...packages].sort()
}

function packageOf(id) {
  // Helpers that bundlers add have no file.
  const helper = /^\0(vite|rolldown)\b/.exec(id)
  if (helper !== null) return helper[1]
  const path = id.replaceAll('\\', '/')
  const inside = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
  return path.includes('node_modules/') ? /^(@[^/]+\/)?[^/]+/.exec(inside)[0] : null
}

/** Notes what a bundle holds. */
export function notePackages(bundle, packages) {
  mkdirSync(notes, { recursive: true })
  writeFileSync(join(notes, `${bundle}.json`), JSON.stringify(packages))
}

export function isNoted(bundle) {
  return existsSync(join(notes, `${bundle}.json`))
}

/** All licences of what the bundles hold. */
export function licencesText() {
  const names = new Set()
  for (const file of readdirSync(notes)) {
    for (const name of JSON.parse(readFileSync(join(notes, file), 'utf8'))) names.add(name)
  }
  const parts = [...names].sort().map(name => {
    const folder = join(root, 'node_modules', name)
    const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const rule = '='.repeat(100)
    return `${rule}\n${name} ${version}\n${license}\n${rule}\n\n${licenceOf(name, folder)}\n`
  })
  const head =
    'The files of this package hold code of the libraries below, each under its own licence.\n' +
    'What is installed beside it as a dependency brings its licence with it.\n'
  return `${head}\n${parts.join('\n')}`
}

/** The package's own files. */
function licenceOf(name, folder) {
  const files = readdirSync(folder).filter(file => /^(licen[cs]e|notice|copying)(\.(md|txt))?$/i.test(file))
  if (!files.some(file => !/^notice/i.test(file))) throw new Error(`${name} is bundled and brings no licence`)
  const texts = files.sort().map(file => readText(join(folder, file)))
  // Bundlers list those of their own dependencies too, of which no code is in ours.
  return texts.join('\n\n').replace(/\n# Licenses of bundled dependencies\n[\s\S]*/, '')
}

function readText(file) {
  return readFileSync(file, 'utf8').replaceAll('\r\n', '\n').trim()
}
