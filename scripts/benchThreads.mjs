#!/usr/bin/env node
// How many threads compute fastest, and whether the engine finds that out: one model in one process, whose teams of every size
// and whose own choice take turns of a few tokens, so that all meet the same machine.
//
//   node scripts/benchThreads.mjs FOLDER [--threads 16] [--sizes 1,2,4,8] [--turns 6] [--turn 8] [--prompt 128] [--warm 3] [--settle 384]
//
// FOLDER: a packed model; synthetic ones lie in the store after `moeflux bench --synthetic`. `--prompt`: prompts of so many tokens as well.
// `--warm`: prompts of 512 tokens at first, which bring experts into memory. `--settle`: tokens that the engine's own choice has for itself.
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { physicalCores } from '../dist/compute/wasm/nodeWorkers.js'
import { openModel } from '../dist/index.js'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: 'string' },
    sizes: { type: 'string' },
    turns: { type: 'string', default: '6' },
    turn: { type: 'string', default: '8' },
    prompt: { type: 'string', default: '0' },
    warm: { type: 'string', default: '3' },
    settle: { type: 'string', default: '384' },
  },
})
const [folder] = positionals
const turns = Number(options.turns)
const turn = Number(options.turn)
const promptTokens = Number(options.prompt)

const model = await openModel(folder, { backend: 'wasm', threads: options.threads && Number(options.threads) })
const backend = model.compute // the engine's own parts: nobody but a measurement needs them
const { runtime, governor } = backend
const all = runtime.threads
const processor = /^model name\s*: (.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown'
console.log(`${processor}: ${availableParallelism()} processors, ${physicalCores()} cores; ${model.backendDescription}`)
await model.loaded()

const sizes = options.sizes?.split(',').map(Number) ?? Array.from({ length: all }, (_, i) => i + 1)
const sides = [
  ...sizes.map(size => ({ name: String(size), size, governor: { size, stepDone() {}, interrupt() {} } })),
  { name: 'own choice', size: all, governor },
].map(side => ({ ...side, decode: [], prompt: [] }))

const context = model.createContext({ maxCheckpoints: 0 })
let token = 0
await context.evaluate([1, 2, 3, 4])
const next = () => (token = (token * 7919 + 104729) % model.vocabSize)

for (let i = 0; i < Number(options.warm); i++) await evaluatePrompt(512)

// The engine looks for its number in the first tokens of a process, and these alone.
const started = performance.now()
const settle = Number(options.settle)
const tried = []
for (let i = 0; i < settle; i++) {
  if (governor.size !== tried.at(-1)) tried.push(governor.size)
  await context.evalTokenGreedy(next())
}
const rate = ((1000 * settle) / (performance.now() - started)).toFixed(1)
console.log(`first ${settle} tokens: ${rate} tok/s, then on ${governor.size} threads (${tried.join(' ')})`)

for (let round = 0; round < turns; round++) {
  const order = round % 2 === 0 ? sides : [...sides].reverse()
  for (const side of order) {
    Object.assign(backend, { governor: side.governor })
    await context.evalTokenGreedy(next()) // wakes those who slept
    const from = performance.now()
    for (let i = 0; i < turn; i++) await context.evalTokenGreedy(next())
    side.decode.push((1000 * turn) / (performance.now() - from))
    if (promptTokens === 0 || round >= 3 || 2 * side.size < all) continue // of few threads they take long
    Object.assign(runtime, { threads: side.size })
    side.prompt.push(await evaluatePrompt(promptTokens))
    Object.assign(runtime, { threads: all })
  }
}
Object.assign(backend, { governor })

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

const middle = values => [...values].sort((a, b) => a - b)[values.length >> 1]
const fixed = sides.filter(({ name }) => name !== 'own choice')
const best = fixed.reduce((a, b) => (middle(b.decode) > middle(a.decode) ? b : a))
for (const { name, decode, prompt } of sides) {
  const range = `${Math.min(...decode).toFixed(1)}–${Math.max(...decode).toFixed(1)}`
  const share = ((100 * middle(decode)) / middle(best.decode)).toFixed(0)
  const prompts = prompt.length > 0 ? `, prompts ${middle(prompt).toFixed(0)} tok/s` : ''
  console.log(`${name.padStart(10)}: ${middle(decode).toFixed(1)} tok/s (${range}), ${share}% of the best${prompts}`)
}
console.log(`chosen in the end: ${governor.size}`)
await model.close()
