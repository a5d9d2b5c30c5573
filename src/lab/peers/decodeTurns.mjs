#!/usr/bin/env node
// Decoding by node-llama-cpp with several numbers of threads and by us with our own choice, in one process and in turns of as many
// tokens, in random order. Speeds of a machine whose host gives processors to others differ by half from one run to the next, so
// runs one after the other say little there. Both take the best token and are given another one: nobody samples, and routing does not
// settle into a loop.
//   PEERS_NODE_MODULES=DIR/node_modules node src/lab/peers/decodeTurns.mjs FOLDER MODEL.gguf [--threads 10,12,14] [--turns 12] [--turn 16]
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { upperMedian } from '../../../dist/base/median.js'
import { openModel } from '../../../dist/index.js'
import { meanRate, shuffled } from '../harness/decodeTurns.mjs'
import { stealMeter } from '../harness/stealMeter.mjs'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: 'string', default: '10,12,14' },
    turns: { type: 'string', default: '12' },
    turn: { type: 'string', default: '16' },
    settle: { type: 'string', default: '128' },
  },
})
const [folder, gguf] = positionals
if (!gguf) {
  console.error('usage: decodeTurns.mjs FOLDER MODEL.gguf [--threads 10,12,14] [--turns 12] [--turn 16] [--settle 128]')
  process.exit(2)
}
const turns = Number(options.turns)
const turn = Number(options.turn)
const settle = Number(options.settle)
const vocab = 4096 // ids below the fillers and control tokens of any preset
let seed = 1
const random = () => (seed = (seed * 1664525 + 1013904223) >>> 0) % vocab

const sides = [await openOurs(), ...(await openPeers(options.threads.split(',').map(Number)))]
for (const { decode } of sides) await decode(settle)
const stolen = stealMeter()
for (let round = 0; round < turns; round++) {
  for (const { decode, rates } of shuffled(sides)) {
    await decode(1) // wakes those who slept
    const from = performance.now()
    await decode(turn)
    rates.push((1000 * turn) / (performance.now() - from))
  }
}
console.log(`${turns} turns of ${turn} tokens each, in random order; steal: ${stolen()}`)
for (const { name, rates } of sides) {
  const range = `${Math.min(...rates).toFixed(1)}–${Math.max(...rates).toFixed(1)}`
  console.log(`${name}: median ${upperMedian(rates).toFixed(1)}, mean ${meanRate(rates).toFixed(1)} tok/s (${range})`)
}
const [ours, ...peers] = sides
const over = of => (of(ours.rates) / Math.max(...peers.map(({ rates }) => of(rates)))).toFixed(2)
console.log(`ours over the peer's best: ${over(upperMedian)} by medians, ${over(meanRate)} by means`)
process.exit(0)

async function openOurs() {
  const model = await openModel(folder, { backend: 'wasm' })
  await model.loaded()
  const context = model.createContext({ maxCheckpoints: 0 })
  await context.evaluate(Array.from({ length: 512 }, random)) // brings experts into memory, as opening does for the peer
  const decode = async tokens => {
    for (let i = 0; i < tokens; i++) await context.evalTokenGreedy(random())
  }
  return { name: `ours (${model.backendDescription})`, decode, rates: [] }
}

/** One context for each number of threads. */
async function openPeers(numbers) {
  const nodeModules = path.resolve(process.env.PEERS_NODE_MODULES ?? 'node_modules')
  const { getLlama } = await import(pathToFileURL(path.join(nodeModules, 'node-llama-cpp/dist/index.js')))
  const llama = await getLlama({ gpu: false, build: 'never', maxThreads: Math.max(...numbers), logLevel: 'error' })
  const model = await llama.loadModel({ modelPath: gguf, gpuLayers: 0 })
  const contextSize = settle + (turns + 1) * (turn + 1) + 64
  const peers = []
  for (const threads of numbers) {
    const context = await model.createContext({ contextSize, threads, ignoreMemorySafetyChecks: true })
    const prompt = Array.from({ length: 16 }, random)
    const tokens = context.getSequence().evaluate(prompt, { temperature: 0, yieldEogToken: true })
    await tokens.next()
    const decode = async count => {
      for (let i = 0; i < count; i++) await tokens.next(random())
    }
    peers.push({ name: `node-llama-cpp, ${context.currentThreads} threads`, decode, rates: [] })
  }
  return peers
}
