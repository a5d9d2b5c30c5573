// Compares products and attention on a GPU's matrix units with sums in float64, on the GPU of this machine: SwiftShader, which all
// other kernels are tested on, has none. Random formats and shapes, tokens alone and among others, numbers that are not finite; then
// a whole model with and without. Prints a line per check and fails where one is outside its band.
//   node src/lab/kernels/checkTensors.mjs [--dist DIR]
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { syntheticModel } from '../harness/syntheticModel.mjs'
import { checkAttention } from './checkTensorAttention.mjs'
import { checkExperts } from './checkTensorExperts.mjs'
import { difference } from './difference.mjs'
import { lay, randomMatrix } from './randomMatrices.mjs'

const { values: args } = parseArgs({
  options: { dist: { type: 'string', default: fileURLToPath(new URL('../../../dist', import.meta.url)) } },
})
const load = name => import(`${args.dist}/${name}`)
const { openDevice } = await load('gpu/device/gpuDevice.js')
const { KernelSet, storageBuffer } = await load('gpu/device/kernel.js')
const { HARDWARE_TUNING } = await load('gpu/device/gpuContext.js')
const { activationBuffers } = await load('gpu/memory/activationBuffers.js')
const { matMulOp } = await load('ops/matmul/matMul.gpu.js')
const { isForTensors } = await load('ops/matmul/tensorMul.gpu.js')
const { Recorder } = await load('gpu/device/recorder.js')
const { readMapped } = await load('gpu/device/gpuMemory.js')
const { matVec } = await load('ops/matmul/reference.js')
const { openWebgpuBackend } = await load('backends/webgpu/open/openWebgpuBackend.js')

const BAND = 2e-3 // of the largest value: half floats have 11 bits
const opened = await openDevice()
if (!opened.tensors) throw new Error(`${opened.description.name} has no matrix units that are used here`)
const { device, subgroups, tensors, packedDot } = opened
const kernels = new KernelSet(device, { SUBGROUPS: true, PACKED_DOT: packedDot })
const gpu = { device, kernels, fast: true, subgroups, tensors, tuning: HARDWARE_TUNING }
let failures = 0
let seed = 1

for (const [group, cols] of [
  [32, 256],
  [64, 512],
  [64, 2048],
  [128, 1024],
]) {
  for (const [rows, tokens] of [
    [1, 1],
    [130, 37],
    [2048, 300],
  ])
    await checkDense(group, cols, rows, tokens)
}
// The larger tiles, which products of a whole chunk take.
for (const tokens of [1, 129, 512]) await checkDense(64, 512, 12000, tokens, 512)
await checkNotFinite()
await checkExperts({ load, gpu, put, run, read, step, random, matVec, report })
await checkAttention({ load, gpu, put, step, run, read, randomFloats, report })
opened.close()
await checkModel()
process.exit(failures === 0 ? 0 : 1)

async function checkDense(group, cols, rows, tokens, most = Math.ceil(tokens / 128) * 128) {
  const weights = randomMatrix(random, rows, cols, group)
  const { part } = resident([weights, randomMatrix(random, 40, cols, group)])
  const x = randomFloats(tokens * cols, 3)
  const [got, again] = [await product(part, x, tokens, cols, most), await product(part, x, tokens, cols, most)]
  const alone = await product(part, x.subarray((tokens - 1) * cols), 1, cols, most)
  const stride = rows + 40
  let worst = 0
  for (const token of new Set([0, tokens >> 1, tokens - 1])) {
    const want = matVec(weights, x.subarray(token * cols, (token + 1) * cols))
    worst = Math.max(worst, difference(got.subarray(token * stride, token * stride + rows), want))
  }
  const isSame = got.every((value, i) => Object.is(value, again[i]))
  const last = got.subarray((tokens - 1) * stride)
  const isAlone = last.every((value, i) => Object.is(value, alone[i]))
  const problem = !isSame ? 'differs from run to run' : !isAlone ? 'depends on other tokens' : ''
  // A single output may be small by chance, and is compared with what it was added up from.
  report(`groups of ${group}, ${rows} x ${cols}, ${tokens} tokens`, rows === 1 ? worst / 4 : worst, problem)
}

async function checkNotFinite() {
  const { part } = resident([randomMatrix(random, 64, 512, 64)])
  for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY, 3e38]) {
    const x = randomFloats(3 * 512, 1)
    x[514] = wrong
    const got = await product(part, x, 3, 512)
    const areFinite = [0, 1, 2].map(token => got.subarray(token * 64, (token + 1) * 64).some(Number.isFinite))
    const want = [true, Math.abs(wrong) < Number.POSITIVE_INFINITY, true]
    report(`an input of ${wrong}`, 0, areFinite.join() === want.join() ? '' : `finite rows: ${areFinite}`)
  }
}

async function product(part, x, tokens, cols, most = 128) {
  const padded = activationBuffers(gpu, most, cols, 'x')
  device.queue.writeBuffer(padded.values, 0, x)
  device.queue.writeBuffer(padded.packed, 0, new Uint8Array(padded.packed.size).fill(0x7e)) // halves that are NaN
  if (!isForTensors(gpu, part, most)) throw new Error('not for matrix units')
  const stride = part.segments.reduce((sum, { rows }) => sum + rows, 0)
  const out = put(new Float32Array(most * stride).fill(Number.NaN))
  const options = { step: step(tokens), maxTokens: most, outStride: stride, label: 'check' }
  await run(await matMulOp(gpu, [part], padded, out, options), tokens)
  const got = await read(out, tokens * stride)
  for (const buffer of [out, ...Object.values(padded)]) buffer.destroy()
  return got
}

/** The same prompt and token, cut differently, with and without. */
async function checkModel() {
  const packed = await syntheticModel(args.dist, 'a3b', 4)
  const prompt = Array.from({ length: 700 }, (_, i) => (i * 7919) % packed.config.vocabSize)
  const results = []
  for (const [precision, options] of [
    ['exact', {}],
    ['fast', { tensors: false }],
    ['fast', {}],
  ]) {
    const backend = await openWebgpuBackend(packed, { precision, expertsPerToken: 8 }, options)
    const sequence = backend.createSequence()
    const outputs = []
    for (const cut of [
      [0, 512, 700],
      [0, 512, 700],
      [0, 100, 101, 612, 700],
    ]) {
      await sequence.clear()
      let output
      for (let i = 1; i < cut.length; i++) {
        const tokens = prompt.slice(cut[i - 1], cut[i])
        ;[output] = await backend.step([{ sequence, tokens, phase: 'prompt', output: 'last' }])
      }
      outputs.push(output.logits)
    }
    const isSame = other => outputs[0].every((value, i) => Object.is(value, other[i]))
    const problem = !isSame(outputs[1]) ? 'differs from run to run' : !isSame(outputs[2]) ? 'differs by cut' : ''
    report(`${backend.description}: any cut`, difference(outputs[2], outputs[0]), problem)
    results.push(outputs[0])
    await backend.close()
  }
  for (const [i, what] of ['int8', 'matrix units'].entries()) {
    const similarity = cosine(results[0], results[i + 1])
    report(`logits of 4 layers, ${what}: cosine ${similarity.toFixed(6)}`, 0, similarity >= 0.999 ? '' : 'too far')
  }
}

function report(what, worst, problem, band = BAND) {
  const isWrong = !(worst <= band) || problem !== ''
  if (isWrong) failures++
  console.log(`${isWrong ? 'WRONG' : 'ok   '} ${what}: ${worst.toExponential(1)} ${problem}`)
}

function cosine(a, b) {
  let [ab, aa, bb] = [0, 0, 0]
  for (const [i, value] of a.entries()) {
    ab += value * b[i]
    aa += value * value
    bb += b[i] * b[i]
  }
  return ab / Math.sqrt(aa * bb)
}

/** Matrices of one input in one buffer. */
function resident(matrices) {
  const { bytes, places } = lay(matrices)
  const [{ cols, bits, group }] = matrices
  const segments = places.map((place, i) => ({ ...place, rows: matrices[i].rows }))
  return { part: { buffer: put(bytes), format: { bits, group, f16: false }, cols, segments } }
}

function randomFloats(length, scale) {
  return Float32Array.from({ length }, () => (random() * 2 - 1) * scale)
}

function random() {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  return ((seed ^ (seed >>> 15)) >>> 0) / 2 ** 32
}

function put(values) {
  const buffer = storageBuffer(device, values.byteLength, 'check')
  device.queue.writeBuffer(buffer, 0, values)
  return buffer
}

function step(tokens, runs = 1) {
  const buffer = device.createBuffer({ size: 16, usage: 0x40 | 8 })
  device.queue.writeBuffer(buffer, 0, new Uint32Array([tokens, runs, 0, 0]))
  return buffer
}

async function run(op, tokens, runs = 1) {
  const recorder = new Recorder(device, null)
  op(recorder, { tokens, runs })
  recorder.submit()
}

async function read(buffer, length) {
  const readback = device.createBuffer({ size: length * 4, usage: 1 | 8 })
  const encoder = device.createCommandEncoder()
  encoder.copyBufferToBuffer(buffer, 0, readback, 0, length * 4)
  device.queue.submit([encoder.finish()])
  const values = new Float32Array(await readMapped(readback, length * 4))
  readback.destroy()
  opened.check()
  return values
}
