// Whether this adapter computes what the CPU computes: drivers have given garbage on one GPU and right answers on another.
// Runs the model's own kernels on a few rows of its own weights, so nothing is compiled for it, and compares with the
// reference. A few milliseconds; finds broken arithmetic, not rare races.
import type { ModelConfig } from '../../model/config.js'
import { gatedMoe } from '../../model/gatedMoe.js'
import type { Matrix } from '../../model/tensors.js'
import type { PackedModel } from '../../storage/packedModel.js'
import { conv1d } from '../reference/conv1d.js'
import { deltaGates } from '../reference/deltaGates.js'
import { gatedDelta } from '../reference/gatedDelta.js'
import { l2Norm } from '../reference/l2Norm.js'
import { matVec } from '../reference/matVec.js'
import { rmsNorm } from '../reference/rmsNorm.js'
import { rmsNormGated } from '../reference/rmsNormGated.js'
import { router } from '../reference/router.js'
import { readMatrix, readVector } from '../reference/weights.js'
import { bufferUsage } from './gpuFlags.js'
import { readMapped } from './gpuMemory.js'
import { linearColumns } from './linearShape.js'
import { linearStepOp } from './linearStep.js'
import { matMulOp } from './matMul.js'
import { formatOf } from './matrixWeights.js'
import { matVecOp } from './matVec.js'
import type { Op } from './op.js'
import type { LayerParts } from './promptLayer.js'
import { Recorder } from './recorder.js'
import type { LayerWeights, ResidentWeights } from './residentWeights.js'
import { EMPTY_STATE } from './statePool.js'
import { StepInfo } from './stepInfo.js'
import { topKOp } from './topK.js'

const ROWS = 16 // of a matrix that are compared
const TOKENS = 3
const EXACT = 1e-3 // largest difference, of the largest value
const FAST = 0.05 // with int8 activations

/** What is wrong, in a few words; null where all is well. `error`: for tests, added to what the GPU gives. */
export async function selfTest(
  parts: LayerParts,
  weights: ResidentWeights,
  packed: PackedModel,
  error = 0,
): Promise<string | null> {
  const { gpu, config, space, slots } = parts
  const layer = weights.layers[0]
  const tensors = packed.tensors.layers[0]
  const { hiddenSize, rmsNormEps: eps, numExperts } = config
  const x = noise(TOKENS * hiddenSize)
  const { queue } = gpu.device
  queue.writeBuffer(space.hidden, 0, x)
  queue.writeBuffer(space.normed.values, 0, x)
  queue.writeBuffer(space.status, 0, new Uint32Array(4))
  queue.writeBuffer(space.step, 0, new Uint32Array([TOKENS, 1, 0, 0]))
  const run = async (op: Op, tokens: number, buffer: GPUBuffer, length: number) =>
    (await runAndRead(gpu.device, op, tokens, buffer, length)).map(value => value + error)

  // One token: a router, in float32 with the norm, and its choice.
  const { status, hidden, logits, mixerIn } = space
  const route = { status, outStride: space.shape.logitsStride, norm: { weight: layer.postNorm, eps }, exact: true }
  const routerOp = await matVecOp(gpu, layer.router, hidden, logits, { ...route, label: 'router' })
  const postNorm = await readVector(tensors.postAttentionNorm, packed.weights)
  const normed = rmsNorm(x.subarray(0, hiddenSize), postNorm, eps)
  const routed = await run(routerOp, 1, logits, numExperts)
  let wrong = differs('the router', routed, await firstRows(packed, gatedMoe(tensors).router, normed), EXACT)
  if (wrong !== null) return wrong
  const choose = await topKOp(gpu, space.shape, { ...space, slotTable: slots.table }, 0, null)
  const choice = await runAndRead(gpu.device, choose, 1, space.choice, space.shape.k)
  const chosen = [...new Uint32Array(choice.buffer)]
  const wanted = [...router(routed, numExperts, space.shape.k).indices]
  if (error === 0 && chosen.join() !== wanted.join()) return `top-k gives ${chosen}, want ${wanted}`

  // The mixer's projections, for one token and for several.
  const { mixer } = tensors
  const first = mixer.kind === 'full_attention' ? mixer.qProj : mixer.inProjQkv
  const isFast = gpu.fast && formatOf(first).bits < 16
  const width = layer.inProj.flatMap(part => part.segments).reduce((sum, { rows }) => sum + rows, 0)
  const inputNorm = await readVector(tensors.inputNorm, packed.weights)
  const norm = { weight: layer.inputNorm, eps }
  const one = await matVecOp(gpu, layer.inProj, hidden, mixerIn, { status, outStride: width, norm, label: 'inProj' })
  const oneWant = await firstRows(packed, first, rmsNorm(x.subarray(0, hiddenSize), inputNorm, eps))
  wrong = differs('a product with one token', await run(one, 1, mixerIn, width), oneWant, isFast ? FAST : EXACT)
  if (wrong !== null) return wrong
  const product = { step: space.step, maxTokens: space.shape.maxTokens, outStride: width, label: 'inProj' }
  const many = await matMulOp(gpu, layer.inProj, space.normed, mixerIn, product)
  const got = await run(many, TOKENS, mixerIn, TOKENS * width)
  const last = await firstRows(packed, first, x.subarray((TOKENS - 1) * hiddenSize))
  wrong = differs('a product with many tokens', got.subarray((TOKENS - 1) * width), last, isFast ? FAST : EXACT)
  if (wrong !== null) return wrong
  return checkLinear(parts, weights.layers, packed, run)
}

/** The delta rule of the first linear layer, one token from the empty state. */
async function checkLinear(
  parts: LayerParts,
  layers: readonly LayerWeights[],
  packed: PackedModel,
  run: (op: Op, tokens: number, buffer: GPUBuffer, length: number) => Promise<Float32Array>,
): Promise<string | null> {
  const { gpu, config, space, states, kv } = parts
  const index = config.layerKinds.indexOf('linear_attention')
  const layer = layers[index]
  const tensors = packed.tensors.layers[index]?.mixer
  if (layer?.kind !== 'linear_attention' || tensors?.kind !== 'linear_attention') return null
  const { linearValueHeads: heads, linearValueDim: valueDim } = config
  const inputs = noise(linearColumns(config).stride)
  gpu.device.queue.writeBuffer(space.mixerIn, 0, inputs)
  const stateOut = states.take()
  try {
    const plan = { tokens: [0], position: 0, pages: [], stateIn: EMPTY_STATE, stateOut }
    new StepInfo(gpu.device, config, space, kv).write([plan])
    const { status, tokenInfo, mixerIn, mixed } = space
    const buffers = { constants: layer.stepConstants, tokenInfo, status, inputs: mixerIn, out: mixed.values }
    const got = await run(await linearStepOp(gpu, config, buffers, states, index), 1, mixed.values, heads * valueDim)
    const vectors = [tensors.conv, tensors.aLog, tensors.dtBias, tensors.norm]
    const [taps, aLog, dtBias, norm] = await Promise.all(vectors.map(each => readVector(each, packed.weights)))
    return differs('the delta rule', got, linearToken(config, inputs, taps, aLog, dtBias, norm), EXACT)
  } finally {
    states.release(stateOut)
  }
}

function linearToken(
  config: ModelConfig,
  inputs: Float32Array,
  taps: Float32Array,
  aLog: Float32Array,
  dtBias: Float32Array,
  norm: Float32Array,
): Float32Array {
  const { linearConvDim, linearKeyHeads: keyHeads, linearKeyDim: keyDim } = config
  const { linearValueHeads: valueHeads, linearValueDim: valueDim } = config
  const { z, b, a } = linearColumns(config)
  const keys = keyHeads * keyDim
  const { out } = conv1d(inputs.slice(0, linearConvDim), new Float32Array(3 * linearConvDim), taps)
  const input = {
    q: l2Norm(out.slice(0, keys), keyDim, keyDim ** -0.5),
    k: l2Norm(out.slice(keys, 2 * keys), keyDim),
    v: out.slice(2 * keys),
    ...deltaGates(inputs.slice(a, a + valueHeads), inputs.slice(b, b + valueHeads), aLog, dtBias),
  }
  const state = new Float32Array(valueHeads * valueDim * keyDim)
  const mixed = gatedDelta(input, state, { keyHeads, valueHeads, keyDim, valueDim })
  return rmsNormGated(mixed, inputs.slice(z, z + valueHeads * valueDim), norm, config.rmsNormEps)
}

/** The first rows of a matrix times x, on the CPU. */
async function firstRows(packed: PackedModel, matrix: Matrix, x: Float32Array): Promise<Float32Array> {
  const rows = Math.min(ROWS, matrix.rows)
  const cut = ({ offset, size }: { offset: number; size: number }) => ({ offset, size: (size / matrix.rows) * rows })
  const part =
    matrix.kind === 'quantized'
      ? { ...matrix, rows, weight: cut(matrix.weight), scales: cut(matrix.scales), biases: cut(matrix.biases) }
      : { ...matrix, rows, weight: cut(matrix.weight) }
  return matVec(await readMatrix(part, packed.weights), x)
}

/** Compares as many values as are wanted. NaN is never within the limit. */
function differs(what: string, got: Float32Array, want: Float32Array, most: number): string | null {
  const largest = want.reduce((max, value) => Math.max(max, Math.abs(value)), 1e-30)
  for (const [i, value] of want.entries()) {
    if (!(Math.abs(got[i] - value) <= most * largest)) return `${what} gives ${got[i]}, want ${value}`
  }
  return null
}

function noise(length: number): Float32Array {
  let state = 1
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 31 - 1
  })
}

async function runAndRead(device: GPUDevice, op: Op, tokens: number, from: GPUBuffer, length: number) {
  const size = length * 4
  const usage = bufferUsage.mapRead | bufferUsage.copyDst
  const readback = device.createBuffer({ label: 'self-test', size, usage })
  const recorder = new Recorder(device, null)
  op(recorder, { tokens, runs: 1 })
  recorder.copy(from, 0, readback, 0, size)
  recorder.submit()
  const values = new Float32Array(await readMapped(readback, size))
  readback.destroy()
  return values
}
