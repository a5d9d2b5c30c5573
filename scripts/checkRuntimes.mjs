// Runs the built command in other runtimes and compares with Node: the same words, JSON of a schema, a look at the machine.
// They have to be installed: `npm install --no-save bun deno`, then `node scripts/checkRuntimes.mjs bun deno`.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const main = join(root, 'dist/apps/cli/main.js')
const OPTIONS = { node: [], bun: [], deno: ['run', '--allow-all'] }
const SCHEMA = {
  type: 'object',
  properties: { a: { enum: [1, 2] } },
  required: ['a'],
  additionalProperties: false,
}
const home = mkdtempSync(join(tmpdir(), 'moeflux-runtimes-'))

function run(program, ...args) {
  const path = `${join(root, 'node_modules/.bin')}:${process.env.PATH}`
  const env = { ...process.env, PATH: path, MOEFLUX_HOME: home }
  return execFileSync(program, [...OPTIONS[program], main, ...args], { env, encoding: 'utf8' })
}

const programs = process.argv.slice(2)
if (programs.length === 0 || programs.some(program => !(program in OPTIONS))) {
  throw new Error('usage: node scripts/checkRuntimes.mjs bun|deno …')
}
try {
  const story = ['run', '--threads', '2', '--temp', '0', '-n', '12', '-q', 'Who are you?']
  const wanted = run('node', ...story)
  for (const program of programs) {
    const got = run(program, ...story)
    if (got !== wanted) throw new Error(`${program}: got ${JSON.stringify(got)}, want ${JSON.stringify(wanted)}`)
    const { a } = JSON.parse(run(program, 'run', '-q', '--json-schema', JSON.stringify(SCHEMA), 'Hi'))
    if (![1, 2].includes(a)) throw new Error(`${program}: got a = ${a}, want 1 or 2`)
    const { auto } = JSON.parse(run(program, 'doctor', '--json'))
    if (!['wasm', 'webgpu'].includes(auto.backend)) throw new Error(`${program}: got backend ${auto.backend}`)
    process.stdout.write(`${program}: answers as Node does\n`)
  }
} finally {
  rmSync(home, { recursive: true, force: true })
}
