// Scripts are plain JavaScript that no compiler looks at, and many of them run only where something is measured. What they import
// must be there, or nobody sees that they are broken before they are wanted.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect, test } from 'vitest'
import { repository } from './support/models/packedFiles.js'

const IMPORT = /^(?:import|export)\s+(?:([^'"]*?)\s+from\s+)?'(\.[^']+)'/gm
const LATE_IMPORT = /(?:const (\{[^}]*\}) = await )?import\('(\.[^']+)'\)/g

/** What a script imports that is not there. */
async function missingIn(script: string, text: string): Promise<string[]> {
  const missing: string[] = []
  for (const [, list = '', from] of [...text.matchAll(IMPORT), ...text.matchAll(LATE_IMPORT)]) {
    const file = join(dirname(script), from)
    const names = /\{([^}]*)\}/.exec(list)?.[1].split(',') ?? []
    const wanted = names.map(name => name.trim().split(/ as |:/)[0]).filter(name => name !== '')
    if (!existsSync(file)) missing.push(from)
    else missing.push(...(await lacking(file, wanted)).map(name => `${name} of ${from}`))
  }
  return missing
}

async function lacking(file: string, wanted: readonly string[]): Promise<string[]> {
  if (file.startsWith(join(repository, 'dist'))) {
    const exported: object = await import(pathToFileURL(file).href)
    return wanted.filter(name => !(name in exported))
  }
  const text = readFileSync(file, 'utf8') // a script: it would run
  return wanted.filter(
    name => !new RegExp(`^export [\\w* ]*\\b${name}\\b|^export \\{[^}]*\\b${name}\\b`, 'm').test(text),
  )
}

test('scripts import what is there', async () => {
  const scripts = ['scripts', 'src/lab'].flatMap(folder =>
    readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.mjs'))
      .map(name => join(repository, folder, name)),
  )
  expect(scripts.length).toBeGreaterThan(40)
  const missing: string[] = []
  for (const script of scripts) {
    for (const each of await missingIn(script, readFileSync(script, 'utf8'))) {
      missing.push(`${relative(repository, script)}: ${each}`)
    }
  }
  expect(missing).toEqual([])
})

test('what is not there is found', async () => {
  const script = join(repository, 'src/lab/none.mjs')
  const text = [
    "import {\n  openModel,\n  openNothing as open,\n} from '../../dist/index.js'",
    "import { meanRate, most } from './harness/decodeTurns.mjs'",
    "import './gone.mjs'",
    "const { serve, served: own } = await import('../../dist/apps/server/serve.js')",
  ]
  const missing = ['openNothing of ../../dist/index.js', 'most of ./harness/decodeTurns.mjs', './gone.mjs']
  expect(await missingIn(script, text.join('\n'))).toEqual([...missing, 'served of ../../dist/apps/server/serve.js'])
})
