// Benchmarks and answers under limits on memory, from plenty to far too little: each must work or say in words why not, and
// none may be killed. Prints a table for performance-log.md.
//
//   node src/lab/bench/memoryLimits.mjs [--synthetic a3b:4] [--prompt 2048] [SIZE …]
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { parseBytes, runCapped, whyNot } from './capped.mjs'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    synthetic: { type: 'string', default: 'a3b:4' },
    prompt: { type: 'string', default: '2048' },
    tokens: { type: 'string', default: '8' },
  },
})
const sizes = positionals.length > 0 ? positionals : ['2GB', '1GB', '900MB', '700MB', '500MB', '300MB']
const reason = whyNot()
if (reason !== null) {
  console.error(reason)
  process.exit(2)
}
const main = join(import.meta.dirname, '../../../dist/apps/cli/main.js')
const { synthetic, prompt, tokens } = values
const bench = ['bench', '--synthetic', synthetic, '--prompt', prompt, '--tokens', tokens, '--repeat', '1', '--no-disk']
const commands = [
  ['bench', bench],
  ['run', ['run', '--seed', '1', '--max-tokens', '40', 'Tell me a story about a girl named Mia']],
]
let killed = false
console.log('| limit | | ended | peak | |\n| --- | --- | --- | --- | --- |')
for (const size of sizes) {
  for (const [name, args] of commands) {
    const result = await runCapped(parseBytes(size), process.execPath, [main, ...args])
    killed ||= result.killed || result.signal !== null
    const end = result.killed ? 'killed' : (result.signal ?? `code ${result.code}`)
    const peak = result.peak === null ? '' : `${(result.peak / 1e6).toFixed(0)} MB`
    console.log(`| ${size} | ${name} | ${end} | ${peak} | ${remark(name, result)} |`)
  }
}
process.exitCode = killed ? 1 : 0

/** What a person would want to know of it. */
function remark(name, { code, stdout, stderr }) {
  if (code !== 0) return /error: (.*)/.exec(stderr)?.[1] ?? stderr.trim().split('\n').at(-1)
  if (name === 'run') return /\n(\d+ tokens, [\d.]+ tok\/s)/.exec(stderr)?.[1] ?? ''
  const field = title => new RegExp(`${title} +(\\S+ tok/s)`).exec(stdout)?.[1]
  const slots = /expert slots ([\d.]+ \w+)/.exec(stdout)?.[1]
  return `prefill ${field('prefill')}, decode ${field('decode')}, experts ${slots}`
}
