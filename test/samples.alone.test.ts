// The programs in examples/ and every TypeScript sample of the documents: checked in TypeScript's strict mode, and run on the
// built-in model as they stand, which is plain JavaScript, one after the other in one process.
import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { repository, temporaryFolder } from './support/models/packedFiles.js'

const run = promisify(execFile)
const read = (name: string) => readFileSync(join(repository, name), 'utf8')
const documents = ['README.md', 'CONTRIBUTING.md', ...readdirSync(join(repository, 'docs')).map(name => `docs/${name}`)]
const SAMPLE = /^```ts\n([\s\S]*?)^```$/gm
const NEEDS_A_PAGE = /'moeflux\/browser'/

const examples = readdirSync(join(repository, 'examples')).map(name => ({
  name: `examples-${name.replace(/\.mjs$/, '')}`,
  source: read(`examples/${name}`),
}))
const samples = documents
  .filter(name => name.endsWith('.md'))
  .flatMap(document =>
    [...read(document).matchAll(SAMPLE)].map(([, source], index) => ({
      name: `${document.replace(/\W/g, '-')}-${index + 1}`,
      source,
    })),
  )

test('examples and samples are TypeScript in its strict mode, and run as they stand', async () => {
  const folder = temporaryFolder()
  mkdirSync(join(folder, 'node_modules'))
  for (const name of readdirSync(join(repository, 'node_modules'))) {
    symlinkSync(join(repository, 'node_modules', name), join(folder, 'node_modules', name))
  }
  symlinkSync(repository, join(folder, 'node_modules/moeflux'))
  const all = [...examples, ...samples]
  const runnable = all.filter(({ source }) => !NEEDS_A_PAGE.test(source))
  expect(runnable.length).toBeGreaterThan(12)
  for (const { name, source } of all) writeFileSync(join(folder, `${name}.mts`), source)
  for (const { name, source } of runnable) writeFileSync(join(folder, `${name}.mjs`), source)
  const names = runnable.map(({ name }) => name)
  const imports = names.map(name => `await import('./${name}.mjs')\nconsole.log('\\nran ${name}')\n`)
  writeFileSync(join(folder, 'all.mjs'), imports.join(''))
  const compilerOptions = {
    ...{ strict: true, skipLibCheck: true, target: 'es2023', module: 'nodenext', noEmit: true, rootDir: '.' },
    ...{ lib: ['es2023', 'dom', 'dom.iterable'], types: ['node'] },
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.mts'] }))
  const tsc = join(repository, 'node_modules/typescript/bin/tsc')
  const checked = await run(process.execPath, [tsc, '-p', folder], { timeout: 100_000 }).catch(
    error => error as { stdout: string },
  )
  expect(checked.stdout).toBe('')
  const env = { ...process.env, MOEFLUX_HOME: join(folder, 'store') }
  const { stdout, stderr } = await run(process.execPath, ['all.mjs'], { cwd: folder, env, timeout: 110_000 })
  expect(stderr).toBe('')
  const parts = stdout.split(/\nran (.*)\n/)
  expect(parts.filter((_, i) => i % 2 === 1)).toEqual(names)
  for (const [i, { name }] of examples.entries()) expect(parts[2 * i].length, name).toBeGreaterThan(40)
})
