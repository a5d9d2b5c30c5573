// Measures the webgpu backend on the GPU of this machine, on a synthetic model that exists in memory alone: random
// weights of a preset's shape, no files. `node scripts/gpuBench.mjs --help` lists the options. Prints one line per result.

import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const { values: args } = parseArgs({
  options: {
    dist: { type: 'string', default: fileURLToPath(new URL('../dist', import.meta.url)) },
    preset: { type: 'string', default: 'a3b' },
    layers: { type: 'string', default: '40' },
    precision: { type: 'string', default: 'fast' },
    decode: { type: 'string', default: '64' },
    prompt: { type: 'string', default: '512' },
    tuning: { type: 'string', default: '{}' },
    drafts: { type: 'boolean', default: false },
    accept: { type: 'string', default: '0.85' },
    profile: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
if (args.help) {
  console.log(
    'gpuBench.mjs [--dist DIR] [--preset a3b] [--layers 40] [--precision fast|exact] [--decode 64] [--prompt 512]',
  )
  console.log('             [--tuning JSON] [--profile] [--drafts [--accept 0.85]]')
  console.log(
    '--drafts: a head for drafts, and how long guesses, steps of several rows and whole rounds take; guesses are',
  )
  console.log('right by dice, as often as --accept says')
  process.exit()
}
const load = name => import(`${args.dist}/${name}`)
const { presets } = await load('model/presets.js')
const { parseConfig, withDraftHead } = await load('model/config.js')
const { planTensors, listSpecs } = await load('model/tensorPlan.js')
const { resolveTensors } = await load('model/resolveTensors.js')
const { defaultExpertFormats, expertParts, expertLayout } = await load('model/expertLayout.js')
const { openWebgpuBackend } = await load('compute/webgpu/openWebgpuBackend.js')

const pattern = makePattern()
const packed = syntheticModel(args.preset, Number(args.layers))
const { expertsPerToken } = packed.config
const options = { precision: args.precision, expertsPerToken, onNotice: console.log, drafts: args.drafts }
const tuning = JSON.parse(args.tuning)

let began = performance.now()
const backend = await openWebgpuBackend(packed, options, { tuning, timing: args.profile })
console.log(`${backend.description}; opened in ${seconds(began)} s`)
const prompt = Array.from({ length: Number(args.prompt) }, (_, i) => (i * 7919) % packed.config.vocabSize)
const sequence = backend.createSequence()
began = performance.now()
await backend.loadAllExperts?.()
console.log(`experts loaded in ${seconds(began)} s`)

const prefill = async () => {
  await sequence.clear()
  const start = performance.now()
  for (let at = 0; at < prompt.length; at += backend.chunkTokens) {
    const tokens = prompt.slice(at, at + backend.chunkTokens)
    await backend.step([{ sequence, tokens, phase: 'prompt', output: 'argmax' }])
  }
  return performance.now() - start
}
const prefillTimes = []
for (let i = 0; i < 5; i++) prefillTimes.push(await prefill())
const promptMs = median(prefillTimes.slice(1))
console.log(
  `prefill ${prompt.length} tokens: ${promptMs.toFixed(1)} ms, ${((prompt.length * 1000) / promptMs).toFixed(0)} tok/s`,
)
if (args.profile) printProfile('prefill', 5)

let token = 1
const decodeTimes = []
const count = Number(args.decode)
for (let i = 0; i < count + 8; i++) {
  const start = performance.now()
  const [output] = await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'argmax' }])
  if (i >= 8) decodeTimes.push(performance.now() - start)
  token = output.argmax
}
const tokenMs = median(decodeTimes)
console.log(
  `decode: ${tokenMs.toFixed(3)} ms median, ${(1000 / tokenMs).toFixed(1)} tok/s (mean ${mean(decodeTimes).toFixed(3)} ms)`,
)
if (args.profile) printProfile('decode', count + 8)
if (args.drafts) await measureDrafts()
const stats = backend.stats()
console.log(`misses ${stats.expertMisses}, hits ${stats.expertHits}`)
await backend.close()

async function measureDrafts() {
  const times = new Map() // by what was measured
  const measure = async (what, work) => {
    const start = performance.now()
    const result = await work()
    const ms = performance.now() - start
    times.set(what, [...(times.get(what) ?? []), ms])
    return { result, ms }
  }
  const guess = async n => (await backend.draft([{ sequence, token, count: n }]))[0].guesses
  const check = async (guesses, keep) => {
    const run = { sequence, tokens: [token, ...guesses], phase: 'decode', output: 'argmax', keep }
    const [{ kept, argmax }] = await backend.step([run])
    token = argmax
    return kept
  }
  // In turns, so that all see the same machine.
  const rounds = [0, 1, 2, 3].map(() => ({ ms: 0, tokens: 0 }))
  for (let turn = 0; turn < count / 4; turn++) {
    for (const [n, sum] of rounds.entries()) {
      for (let i = 0; i < 4; i++) {
        const { result: guesses, ms: guessMs } =
          n === 0 ? { result: [], ms: 0 } : await measure(`${n} guesses`, () => guess(n))
        let kept = 1
        while (kept <= n && Math.random() < Number(args.accept)) kept++
        const { ms } = await measure(`step of ${n + 1} rows`, () => check(guesses, () => kept))
        if (turn < 2) continue
        sum.ms += guessMs + ms
        sum.tokens += kept
      }
    }
    if (args.profile && turn === 1) backend.resetProfile()
  }
  for (const [what, list] of times) console.log(`${what}: ${median(list.slice(8)).toFixed(3)} ms`)
  for (const [n, { ms, tokens }] of rounds.entries()) {
    console.log(`rounds of ${n} guesses: ${((1000 * tokens) / ms).toFixed(1)} tok/s (${args.accept} right, by dice)`)
  }
  if (args.profile) printProfile('drafts', 1)
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

function syntheticModel(name, layers) {
  const json = { ...presets[name].json, num_hidden_layers: layers }
  const plain = parseConfig(json)
  const config = args.drafts ? withDraftHead(plain) : plain
  const stored = new Map()
  const fills = [] // by offset
  let size = 0
  const add = (tensor, shape, dtype, bytes, fill, more = {}) => {
    stored.set(tensor, { offset: size, size: bytes, shape, dtype, ...more })
    fills.push({ offset: size, end: size + bytes, fill })
    size = Math.ceil((size + bytes) / 64) * 64
  }
  for (const spec of listSpecs(planTensors(config))) {
    if (spec.kind === 'vector') {
      const value = spec.role === 'decay' ? 0 : /dt_bias/.test(spec.name) ? 0 : /conv/.test(spec.name) ? 0.25 : 1
      add(spec.name, vectorShape(spec, config), 'F32', spec.length * 4, target => {
        new Float32Array(target.buffer, target.byteOffset, target.length / 4).fill(value)
      })
      continue
    }
    const bits = spec.isGate ? 8 : 4
    const groups = (spec.rows * spec.cols) / 64
    add(
      `${spec.name}.weight`,
      [spec.rows, (spec.cols * bits) / 32],
      'U32',
      (spec.rows * spec.cols * bits) / 8,
      randomBytes,
      { bits },
    )
    const scale = 2 / (Math.sqrt(spec.cols) * 2 ** bits)
    add(`${spec.name}.scales`, [spec.rows, spec.cols / 64], 'BF16', groups * 2, halves(scale))
    add(`${spec.name}.biases`, [spec.rows, spec.cols / 64], 'BF16', groups * 2, halves(-scale * 2 ** (bits - 1)))
  }
  const weights = {
    name: 'synthetic weights',
    size,
    async read(offset, target) {
      const at = fills.find(range => offset >= range.offset && offset < range.end)
      at.fill(target)
    },
    async close() {},
  }
  const parts = expertParts(config, defaultExpertFormats(4))
  const layout = expertLayout(config, parts, 'packed_experts')
  const records = Array.from({ length: 8 }, () => {
    const record = new Uint8Array(layout.expertSize)
    for (const part of parts) {
      const range = record.subarray(part.offset, part.offset + part.size)
      const cols = part.projection === 'down' ? config.moeIntermediateSize : config.hiddenSize
      const scale = 2 / (Math.sqrt(cols) * 16)
      if (part.kind === 'weight') randomBytes(range)
      else halves(part.kind === 'scales' ? scale : -scale * 8)(range)
    }
    return record
  })
  const files = config.expertLayers.map(layer => ({
    name: `synthetic experts ${layer}`,
    size: config.numExperts * layout.expertSize,
    async read(offset, target) {
      target.set(records[(layer * 31 + offset / layout.expertSize) % records.length])
    },
    async close() {},
  }))
  const tensors = resolveTensors(config, stored, weights)
  return {
    name,
    config,
    tensors,
    weights,
    experts: { layout, layouts: files.map(() => layout), files, checksums: null },
    fingerprint: name,
    async close() {},
  }
}

function vectorShape(spec, config) {
  return /conv1d/.test(spec.name) ? [config.linearConvDim, 4, 1] : [spec.length]
}

function randomBytes(target) {
  for (let at = 0; at < target.length; at += pattern.length) {
    target.set(pattern.subarray(0, Math.min(pattern.length, target.length - at)), at)
  }
}

function halves(value) {
  const word = new Uint32Array(Float32Array.of(value).buffer)[0] >>> 16
  return target => new Uint16Array(target.buffer, target.byteOffset, target.length / 2).fill(word)
}

function makePattern() {
  const words = new Uint32Array(2 ** 20 + 7)
  let state = 12345
  for (let i = 0; i < words.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    words[i] = state ^ (state >>> 15)
  }
  return new Uint8Array(words.buffer)
}

function seconds(start) {
  return ((performance.now() - start) / 1000).toFixed(1)
}

function median(list) {
  return [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]
}

function mean(list) {
  return list.reduce((sum, value) => sum + value, 0) / list.length
}
