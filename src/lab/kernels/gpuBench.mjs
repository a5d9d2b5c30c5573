// Measures the webgpu backend on the GPU of this machine, on a synthetic model that exists in memory alone: random
// weights of a preset's shape, no files. `node src/lab/kernels/gpuBench.mjs --help` lists the options. Prints one line per result.
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { upperMedian } from '../../../dist/base/median.js'
import { syntheticModel } from '../harness/syntheticModel.mjs'

const { values: args } = parseArgs({
  options: {
    dist: { type: 'string', default: fileURLToPath(new URL('../../../dist', import.meta.url)) },
    preset: { type: 'string', default: 'a3b' },
    layers: { type: 'string', default: '40' },
    precision: { type: 'string', default: 'fast' },
    decode: { type: 'string', default: '64' },
    prompt: { type: 'string', default: '512' },
    tuning: { type: 'string', default: '{}' },
    drafts: { type: 'boolean', default: false },
    accept: { type: 'string', default: '0.85' },
    device: { type: 'string', default: '{}' },
    profile: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
if (args.help) {
  console.log(
    'gpuBench.mjs [--dist DIR] [--preset a3b] [--layers 40] [--precision fast|exact] [--decode 64] [--prompt 512,4096]',
  )
  console.log('             [--tuning JSON] [--device JSON] [--profile] [--drafts [--accept 0.85]]')
  console.log(
    '--drafts: a head for drafts, and how long rounds of guesses take once they follow one another; guesses are',
  )
  console.log('right by dice, as often as --accept says')
  process.exit()
}
const TURN_ROUNDS = 24 // one after the other with as many guesses
const SETTLING_ROUNDS = 6 // of them: until steps are submitted ahead
const load = name => import(`${args.dist}/${name}`)
const { openWebgpuBackend } = await load('backends/webgpu/open/openWebgpuBackend.js')

const packed = await syntheticModel(args.dist, args.preset, Number(args.layers), { drafts: args.drafts })
const { expertsPerToken } = packed.config
const options = { precision: args.precision, expertsPerToken, onNotice: console.log, drafts: args.drafts }
const tuning = JSON.parse(args.tuning)

let began = performance.now()
const backend = await openWebgpuBackend(packed, options, { ...JSON.parse(args.device), tuning, timing: args.profile })
console.log(`${backend.description}; opened in ${seconds(began)} s`)
const sequence = backend.createSequence()
began = performance.now()
await backend.loadAllExperts?.()
console.log(`experts loaded in ${seconds(began)} s`)

const prefill = async prompt => {
  await sequence.clear()
  const start = performance.now()
  for (let at = 0; at < prompt.length; ) {
    const { chunkTokens } = backend // which changes
    const tokens = prompt.slice(at, at + chunkTokens - (at % chunkTokens))
    const output = at + tokens.length < prompt.length ? 'none' : 'argmax' // as the engine asks
    await backend.step([{ sequence, tokens, phase: 'prompt', output }])
    at += tokens.length
  }
  return performance.now() - start
}
const PROMPTS = 5
for (const length of args.prompt.split(',').map(Number)) {
  const prompt = Array.from({ length }, (_, i) => (i * 7919) % packed.config.vocabSize)
  // A GPU that had nothing to do takes a second to come to its clock.
  const warm = performance.now() + (args.profile ? 0 : 1500)
  do await prefill(prompt)
  while (performance.now() < warm)
  backend.resetProfile()
  const times = []
  for (let i = 0; i < PROMPTS; i++) times.push(await prefill(prompt))
  const ms = upperMedian(times)
  console.log(`prefill ${length} tokens: ${ms.toFixed(1)} ms, ${((length * 1000) / ms).toFixed(0)} tok/s`)
  if (args.profile) printProfile('prefill', PROMPTS)
}

let token = 1
const decodeTimes = []
const count = Number(args.decode)
for (let i = 0; i < count + 8; i++) {
  const start = performance.now()
  const [output] = await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'argmax' }])
  if (i >= 8) decodeTimes.push(performance.now() - start)
  token = output.argmax
}
const tokenMs = upperMedian(decodeTimes)
console.log(
  `decode: ${tokenMs.toFixed(3)} ms median, ${(1000 / tokenMs).toFixed(1)} tok/s (mean ${mean(decodeTimes).toFixed(3)} ms)`,
)
if (args.profile) printProfile('decode', count + 8)
if (args.drafts) await measureDrafts()
const stats = backend.stats()
console.log(`misses ${stats.expertMisses}, hits ${stats.expertHits}`)
await backend.close()

async function measureDrafts() {
  const rounds = [0, 1, 2, 3].map(guesses => ({ guesses, times: [], tokens: 0 }))
  const turns = Math.ceil(count / 40)
  // In turns, so that all see the same machine.
  for (let turn = 0; turn < turns; turn++) {
    for (const own of rounds) {
      for (let i = 0; i < TURN_ROUNDS; i++) {
        const start = performance.now()
        const kept = own.guesses === 0 ? await plainToken() : await round(own.guesses)
        if (i < SETTLING_ROUNDS) continue
        own.times.push(performance.now() - start)
        own.tokens += kept
      }
    }
    if (args.profile && turn === 0) backend.resetProfile()
  }
  for (const { guesses, times, tokens } of rounds) {
    const ms = upperMedian(times).toFixed(3)
    const rate = (1000 * tokens) / (mean(times) * times.length)
    console.log(
      `rounds of ${guesses} guesses: ${ms} ms median (mean ${mean(times).toFixed(3)} ms), ${rate.toFixed(1)} tok/s (${args.accept} right, by dice)`,
    )
  }
  if (args.profile) printProfile('drafts', 1)
}

async function plainToken() {
  const [{ argmax }] = await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'argmax' }])
  token = argmax
  return 1
}

/** Guesses and the step that checks them, as one: the step is submitted while guesses are on their way. */
async function round(count) {
  const [{ guesses }] = await backend.draft([{ sequence, token, count }])
  let kept = 1
  while (kept <= count && Math.random() < Number(args.accept)) kept++
  const run = { sequence, tokens: [token, ...guesses], phase: 'decode', output: 'argmax', keep: () => kept }
  const [{ argmax }] = await backend.step([run])
  token = argmax
  return kept
}

function printProfile(what, steps) {
  const times = backend.profile()
  const total = times.reduce((sum, { ms }) => sum + ms, 0)
  console.log(`${what}: ${(total / steps).toFixed(3)} ms of GPU time per step`)
  for (const { label, count: calls, ms } of times) {
    console.log(
      `  ${label.padEnd(16)} ${(ms / steps).toFixed(4)} ms  ${(calls / steps).toFixed(1)} x ${((ms * 1000) / calls).toFixed(2)} us`,
    )
  }
  backend.resetProfile()
}

function seconds(start) {
  return ((performance.now() - start) / 1000).toFixed(1)
}

function mean(list) {
  return list.reduce((sum, value) => sum + value, 0) / list.length
}
