#!/usr/bin/env node
// Measures node-llama-cpp on the CPU: prompt tok/s, decode tok/s, memory and disk reads.
//   PEERS_NODE_MODULES=DIR/node_modules node src/lab/peers/benchNodeLlamaCpp.mjs MODEL.gguf [--runs 3] ...
// Random prompt tokens and temperature 1, so that routing does not settle into a loop.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'

const {
  values: o,
  positionals: [model],
} = parseArgs({
  allowPositionals: true,
  options: {
    prompt: { type: 'string', default: '128' },
    decode: { type: 'string', default: '64' },
    runs: { type: 'string', default: '3' },
    threads: { type: 'string', default: '2' },
    context: { type: 'string', default: '512' },
    mmap: { type: 'string', default: '1' },
    warmup: { type: 'string', default: '1' },
    log: { type: 'string', default: 'error' },
    temperature: { type: 'string', default: '1' },
  },
})
if (!model) {
  console.error(
    'usage: bench-node-llama-cpp.mjs MODEL.gguf [--prompt 128] [--decode 64] [--runs 3] [--threads 2] [--mmap 1] [--warmup 1]',
  )
  process.exit(2)
}
const nodeModules = path.resolve(process.env.PEERS_NODE_MODULES ?? 'node_modules')
const { getLlama } = await import(pathToFileURL(path.join(nodeModules, 'node-llama-cpp/dist/index.js')))

const readBytes = () => Number(/^read_bytes: (\d+)/m.exec(fs.readFileSync('/proc/self/io', 'utf8'))[1])
const status = k =>
  Math.round(Number(new RegExp(`^${k}:\\s+(\\d+)`, 'm').exec(fs.readFileSync('/proc/self/status', 'utf8'))[1]) / 1024)
const seconds = () => performance.now() / 1000
const busy = () =>
  fs
    .readFileSync('/proc/stat', 'utf8')
    .split(/\s+/)
    .slice(1, 9)
    .reduce((a, x, i) => a + (i === 3 || i === 4 ? 0 : Number(x)), 0) / 100
const own = () => {
  const u = process.cpuUsage()
  return (u.user + u.system) / 1e6
}
const round = (x, d = 2) => Number(x.toFixed(d))
const print = x => fs.writeSync(1, `${JSON.stringify(x)}\n`)

const t = seconds()
const llama = await getLlama({ gpu: false, build: 'never', maxThreads: Number(o.threads), logLevel: o.log })
const m = await llama.loadModel({ modelPath: model, gpuLayers: 0, useMmap: o.mmap === '1' })
const context = await m.createContext({
  contextSize: Number(o.context),
  batchSize: Number(o.context),
  threads: Number(o.threads),
  ignoreMemorySafetyChecks: true,
})
const sequence = context.getSequence()
print({
  model: path.basename(model),
  threads: context.currentThreads,
  loadSeconds: round(seconds() - t),
  loadReadMB: round(readBytes() / 1e6, 0),
  rssMB: status('VmRSS'),
  anonMB: status('RssAnon'),
  fileMB: status('RssFile'),
})

const vocab = 4096 // ids below the fillers and control tokens of any preset
async function run(nPrompt, nDecode, seed) {
  await sequence.clearHistory()
  let s = (seed * 2654435761) >>> 0
  const prompt = Array.from({ length: nPrompt }, () => (s = (s * 1664525 + 1013904223) >>> 0) % vocab)
  const tokens = sequence.evaluate(prompt, { temperature: Number(o.temperature), seed, yieldEogToken: true })
  const t0 = seconds(),
    r0 = readBytes(),
    b0 = busy() - own()
  await tokens.next()
  const t1 = seconds(),
    r1 = readBytes(),
    faults = process.resourceUsage().majorPageFault
  const seen = new Set()
  for (let i = 0; i < nDecode; i++) seen.add((await tokens.next()).value)
  const t2 = seconds(),
    r2 = readBytes()
  await tokens.return()
  return {
    promptTokS: round(nPrompt / (t1 - t0)),
    decodeTokS: round(nDecode / (t2 - t1)),
    distinctTokens: seen.size,
    promptReadMB: round((r1 - r0) / 1e6, 0),
    decodeReadMBPerTok: round((r2 - r1) / 1e6 / nDecode, 1),
    majorFaultsPerTok: round((process.resourceUsage().majorPageFault - faults) / nDecode, 0),
    rssMB: status('VmRSS'),
    anonMB: status('RssAnon'),
    fileMB: status('RssFile'),
    otherCores: round(Math.max(0, busy() - own() - b0) / (t2 - t0)),
  } // cores that other processes used meanwhile
}
if (o.warmup === '1') await run(16, 8, 99)
for (let i = 1; i <= Number(o.runs); i++) print({ run: i, ...(await run(Number(o.prompt), Number(o.decode), i)) })
print({ peakRssMB: status('VmHWM') })
process.exit(0)
