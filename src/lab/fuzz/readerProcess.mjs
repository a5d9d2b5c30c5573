// Runs cases of the readers in a process of their own, one after the other, and tells its parent when each begins and how
// it ended. What hangs or dies here takes nothing else with it.
import { once } from 'node:events'
import { MoefluxError } from '#moeflux/base/errors.js'
import { seededRandom } from '../harness/random.mjs'
import { prepareReaders } from './readers/all.mjs'
import { Wrong } from './readers/wrong.mjs'

const MAX_MESSAGE = 1000
const MAX_GROWTH_BYTES = 256 * 2 ** 20

const [{ seed, cases }] = await once(process, 'message') // cases: [target, index][]
const readers = await prepareReaders()
process.on('unhandledRejection', error => process.send({ stray: describe(error) }))

// What is made of something that is not valid to begin with tests nothing.
for (const target of new Set(cases.map(([name]) => name))) await readers[target].read(readers[target].valid)

for (const [target, index] of cases) {
  const reader = readers[target]
  const input = await reader.make(seededRandom(seed, target, index))
  process.send({ begin: [target, index], limitMs: reader.limitMs ?? null })
  const started = performance.now()
  const before = process.resourceUsage().maxRSS
  const outcome = await outcomeOf(reader, input)
  const milliseconds = performance.now() - started
  const growth = (process.resourceUsage().maxRSS - before) * 1024
  if (growth > MAX_GROWTH_BYTES) outcome.problem ??= `took ${Math.round(growth / 2 ** 20)} MiB`
  process.send({ end: [target, index], ...outcome, milliseconds, input: inputText(input, outcome) })
}
for (const reader of Object.values(readers)) await reader.close?.()
process.send({ done: true }, () => process.exit(0))

async function outcomeOf({ read, names, isRefusal }, input) {
  try {
    await read(input)
    return { result: 'opened', problem: null }
  } catch (error) {
    if (error instanceof Wrong) return { result: 'wrong', problem: error.message }
    if (isRefusal?.(error)) return named(error, 'refused', names)
    if (!(error instanceof MoefluxError)) return { result: 'raw error', problem: describe(error) }
    if (typeof error.code !== 'string' || error.code === '')
      return { result: 'wrong', problem: 'an error without a code' }
    return named(error, error.code, names)
  }
}

/** A refusal must say, in a few words, of what. */
function named(error, result, names) {
  const { message } = error
  const problem = !names.some(name => message.includes(name))
    ? `the message names no file: ${message.slice(0, 300)}`
    : message.length > MAX_MESSAGE
      ? `a message of ${message.length} characters: ${message.slice(0, 200)}`
      : /\[object | is undefined/.test(message)
        ? `a message that says nothing: ${message.slice(0, 300)}`
        : null
  return { result, problem, message: message.slice(0, 300) }
}

function describe(error) {
  return (error?.stack ?? String(error)).split('\n').slice(0, 4).join(' | ').slice(0, 600)
}

/** Only of what is to be looked at. */
function inputText(input, { problem }) {
  if (problem === null && cases.length > 1) return null
  const short = value => {
    if (value === null) return 'no file'
    return (typeof value === 'string' ? value : Buffer.from(value).toString('latin1')).slice(0, 1500)
  }
  if (!(input instanceof Map)) return short(input)
  return [...input].map(([name, value]) => `${name}: ${short(value)}`).join('\n')
}
