#!/usr/bin/env node
// How many threads compute fastest, and whether the engine finds that out: one model in one process, whose teams of every size
// and whose own choice take turns of as many tokens, so that all meet the same machine. The order of turns is drawn anew in each
// round: a machine that hangs every so often would else meet the same side each time.
//
//   node src/lab/bench/benchThreads.mjs [FOLDER] [--threads 16] [--sizes 1,2,4,8] [--turns 12] [--turn 16] [--prompt 128] [--warm 3] [--settle 256]
//
// FOLDER: a packed model, by default the built-in one; synthetic ones are in the store after `moeflux bench --synthetic`. `--prompt`: prompts of so many tokens as well.
// `--warm`: prompts of 512 tokens at first, which bring experts into memory. `--settle`: tokens that the engine's own choice has for itself.
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { physicalCores } from '../../../dist/backends/wasm/workers/nodeWorkers.js'
import { upperMedian } from '../../../dist/base/median.js'
import { demoModelPath, openModel } from '../../../dist/index.js'
import { meanRate, shuffled } from '../harness/decodeTurns.mjs'
import { stealMeter } from '../harness/stealMeter.mjs'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: 'string' },
    sizes: { type: 'string' },
    turns: { type: 'string', default: '12' },
    turn: { type: 'string', default: '16' },
    prompt: { type: 'string', default: '0' },
    warm: { type: 'string', default: '3' },
    settle: { type: 'string', default: '256' },
  },
})
const [folder = demoModelPath()] = positionals
const turns = Number(options.turns)
const turn = Number(options.turn)
const promptTokens = Number(options.prompt)

const model = await openModel(folder, { backend: 'wasm', threads: options.threads && Number(options.threads) })
const backend = model.compute // the engine's own parts: nobody but a measurement needs them
const { runtime, governor } = backend
const all = runtime.threads
console.log(
  `${processor()}: ${availableParallelism()} processors, ${physicalCores()} cores; ${model.backendDescription}`,
)
await model.loaded()

const sizes = options.sizes?.split(',').map(Number) ?? Array.from({ length: all }, (_, i) => i + 1)
const fixed = sizes.map(size => ({ name: String(size), size, governor: fixedGovernor(size) }))
const sides = [...fixed, { name: 'own choice', size: all, governor }].map(side => ({ ...side, decode: [], prompt: [] }))

const context = model.createContext({ maxCheckpoints: 0 })
let token = 0
await context.evaluate([1, 2, 3, 4])
const next = () => (token = (token * 7919 + 104729) % model.vocabSize)

for (let i = 0; i < Number(options.warm); i++) await evaluatePrompt(512)

// The engine looks for its number in the first tokens of a process, and these alone.
const settle = Number(options.settle)
const tried = []
const first = await decode(settle, () => governor.size !== tried.at(-1) && tried.push(governor.size))
console.log(`first ${settle} tokens: ${first.toFixed(1)} tok/s, then on ${governor.size} threads (${tried.join(' ')})`)

const stolen = stealMeter()
for (let round = 0; round < turns; round++) {
  for (const side of shuffled(sides)) {
    Object.assign(backend, { governor: side.governor })
    await context.evalTokenGreedy(next()) // wakes those who slept
    side.decode.push(await decode(turn))
    if (promptTokens === 0 || round >= 3 || 2 * side.size < all) continue // of few threads they take long
    Object.assign(runtime, { threads: side.size })
    side.prompt.push(await evaluatePrompt(promptTokens))
    Object.assign(runtime, { threads: all })
  }
}
Object.assign(backend, { governor })

/** Always the same number. */
function fixedGovernor(size) {
  return { size, sizeFor: () => size, isTrying: false, stepDone() {}, interrupt() {} }
}

/** Tokens a second. */
async function decode(tokens, before = () => {}) {
  const from = performance.now()
  for (let i = 0; i < tokens; i++) {
    before()
    await context.evalTokenGreedy(next())
  }
  return (1000 * tokens) / (performance.now() - from)
}

/** Tokens a second. */
async function evaluatePrompt(tokens) {
  const other = model.createContext({ maxCheckpoints: 0 })
  const prompt = Array.from({ length: tokens }, next)
  const begun = performance.now()
  await other.evaluate(prompt, { logits: 'none' })
  const seconds = (performance.now() - begun) / 1000
  await other.close()
  return tokens / seconds
}

function processor() {
  try {
    return /^model name\s*: (.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown'
  } catch {
    return 'unknown'
  }
}

const best = of => sides.slice(0, -1).reduce((most, { decode }) => Math.max(most, of(decode)), 0)
const [bestMedian, bestMean] = [best(upperMedian), best(meanRate)]
const percent = (value, of) => `${((100 * value) / of).toFixed(0)}%`
console.log(`${turns} turns of ${turn} tokens each, in random order; steal: ${stolen()}`)
for (const { name, decode, prompt } of sides) {
  const range = `${Math.min(...decode).toFixed(1)}–${Math.max(...decode).toFixed(1)}`
  const prompts = prompt.length > 0 ? `, prompts ${upperMedian(prompt).toFixed(0)} tok/s` : ''
  const shares = `${percent(upperMedian(decode), bestMedian)} and ${percent(meanRate(decode), bestMean)} of the best`
  console.log(
    `${name.padStart(10)}: median ${upperMedian(decode).toFixed(1)}, mean ${meanRate(decode).toFixed(1)} tok/s (${range}), ${shares}${prompts}`,
  )
}
console.log(`chosen in the end: ${governor.size}`)
await model.close()
