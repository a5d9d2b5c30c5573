// What the JavaScript thread does on webgpu for a token and for a chunk of a prompt, in microseconds, whatever a GPU makes of it: on
// Dawn's null backend, which takes commands and computes nothing. The model has as many layers as the preset, but narrow ones: what the host
// does depends on how many commands there are, not on their size. Two things differ from a GPU: the null backend allows 8 storage
// buffers in a shader, so that experts are chosen by a dispatch of their own (304 for a token of a3b instead of 264), and a driver would
// take its own time to submit. Processor time, the least of several batches, since others may use the machine; then the calls
// of the API, each with a clock around it: how many, and the median.
import { performance } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { create, globals } from 'webgpu'
import { upperMedian } from '../../../dist/base/median.js'
import { syntheticModel } from '../harness/syntheticModel.mjs'

const { values: args } = parseArgs({
  options: {
    dist: { type: 'string', default: fileURLToPath(new URL('../../../dist', import.meta.url)) },
    preset: { type: 'string', default: 'a3b' },
    layers: { type: 'string', default: '40' },
    batches: { type: 'string', default: '20' },
    help: { type: 'boolean', default: false },
  },
})
if (args.help) {
  console.log('gpuHostCost.mjs [--dist DIR] [--preset a3b] [--layers 40] [--batches 20]')
  process.exit()
}
const NARROW = { hidden_size: 256, moe_intermediate_size: 64, shared_expert_intermediate_size: 64, num_experts: 16 }
const NARROW_HEADS = { linear_num_key_heads: 2, linear_num_value_heads: 4, num_attention_heads: 4, head_dim: 64 }
const CHUNK = 64 // tokens
const TIMED_BATCHES = 5
const TIMED = {
  GPUComputePassEncoder: ['setPipeline', 'setBindGroup', 'dispatchWorkgroups', 'end'],
  GPUCommandEncoder: ['beginComputePass', 'copyBufferToBuffer', 'finish'],
  GPUQueue: ['submit', 'writeBuffer'],
  GPUDevice: ['createCommandEncoder', 'createBindGroup', 'createBuffer'],
  GPUBuffer: ['mapAsync', 'getMappedRange', 'unmap'],
}

const gpu = create(['backend=null', 'enable-dawn-features=disable_workgroup_init'])
Object.defineProperty(globalThis, 'navigator', { value: { gpu }, configurable: true })
const { openWebgpuBackend } = await import(`${args.dist}/backends/webgpu/open/openWebgpuBackend.js`)
const changes = { ...NARROW, ...NARROW_HEADS }
const packed = await syntheticModel(args.dist, args.preset, Number(args.layers), { changes })
const { expertsPerToken } = packed.config
const options = { precision: 'fast', expertsPerToken, planned: { tokens: 256, sequences: 2 } }
const backend = await openWebgpuBackend(packed, options, { isNull: true, chunkTokens: CHUNK })
await backend.loadAllExperts()
readZeros()
const sequence = backend.createSequence()
console.log(`${args.preset}, ${args.layers} layers`)

const tokens = Array.from({ length: CHUNK }, (_, i) => i)
const into = new Float32Array(packed.config.vocabSize) // as the engine has it
await report('a chunk of a prompt', 4, () => backend.step([{ sequence, tokens, phase: 'prompt', output: 'argmax' }]))
for (const [what, output] of [
  ['a token, the best', 'argmax'],
  ['a token by its logits', 'last'],
]) {
  await report(what, 8, () => backend.step([{ sequence, tokens: [0], phase: 'decode', output, into }]))
}
await backend.close()

async function report(what, count, step) {
  const batch = async () => {
    await sequence.clear()
    for (let i = 0; i < 3; i++) await step() // so that what is recorded ahead is
    const before = process.cpuUsage()
    for (let i = 0; i < count; i++) await step()
    const { user, system } = process.cpuUsage(before)
    return (user + system) / count
  }
  const times = []
  for (let i = 0; i < Number(args.batches); i++) times.push(await batch())
  console.log(`${what}: ${Math.min(...times).toFixed(0)} us (median of batches ${upperMedian(times).toFixed(0)})`)
  const calls = await timeCalls(batch)
  for (const [name, list] of calls) {
    const perStep = list.length / (TIMED_BATCHES * (count + 3))
    const each = upperMedian(list)
    const sum = (perStep * each).toFixed(0)
    console.log(`  ${name.padEnd(20)} ${perStep.toFixed(1).padStart(6)} x ${each.toFixed(2)} = ${sum} us`)
  }
}

/** Microseconds of every call, by the method's name. */
async function timeCalls(batch) {
  const calls = new Map()
  const undo = []
  for (const [type, names] of Object.entries(TIMED)) {
    const { prototype } = globals[type]
    for (const name of names) {
      const original = prototype[name]
      const times = []
      calls.set(name, times)
      prototype[name] = function (...given) {
        const start = performance.now()
        const result = original.apply(this, given)
        times.push((performance.now() - start) * 1000)
        return result
      }
      undo.push(() => Object.assign(prototype, { [name]: original }))
    }
  }
  for (let i = 0; i < TIMED_BATCHES; i++) await batch()
  for (const put of undo) put()
  return [...calls].filter(([, { length }]) => length > 0)
}

/** Nothing is copied on the null backend: what comes back is what memory held before. */
function readZeros() {
  const { prototype } = globals.GPUBuffer
  const { getMappedRange } = prototype
  prototype.getMappedRange = function (...given) {
    const range = getMappedRange.apply(this, given)
    new Uint32Array(range, 0, Math.min(8192, range.byteLength / 4)).fill(0)
    return range
  }
}
