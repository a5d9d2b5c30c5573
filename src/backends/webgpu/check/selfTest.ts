// Whether this adapter computes what the CPU computes: drivers have given garbage on one GPU and right answers on another.
// Runs the model's own kernels on a few rows of its own weights, so nothing is compiled for it, and compares with the
// reference. A few milliseconds; finds broken arithmetic, not rare races.
import type { PackedModel } from '../../../files/packed/packedModel.js'
import type { Op } from '../../../gpu/device/op.js'
import { formatOf } from '../../../gpu/memory/matrixWeights.js'
import { EMPTY_STATE } from '../../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../../model/config.js'
import { linearColumns } from '../../../model/linearShape.js'
import type { Matrix, Vector } from '../../../model/tensors.js'
import { addBias } from '../../../ops/activation/reference.js'
import { conv1d } from '../../../ops/conv1d/reference.js'
import { linearStepOp } from '../../../ops/gatedDelta/gatedDeltaStep.gpu.js'
import { deltaGates, gatedDelta } from '../../../ops/gatedDelta/reference.js'
import { matMulOp } from '../../../ops/matmul/matMul.gpu.js'
import { matVecOp } from '../../../ops/matmul/matVec.gpu.js'
import { matVec } from '../../../ops/matmul/reference.js'
import { readMatrix, readVector } from '../../../ops/matmul/storedWeights.js'
import { l2Norm, rmsNorm, rmsNormGated } from '../../../ops/norm/reference.js'
import { router } from '../../../ops/router/reference.js'
import { routerOp } from '../../../ops/router/router.gpu.js'
import type { LayerWeights } from '../memory/layerWeights.js'
import type { ResidentWeights } from '../memory/residentWeights.js'
import { StepInfo } from '../memory/stepInfo.js'
import { expertsOf, type LayerParts } from '../prefill/prefillLayer.js'
import { checkAttention } from './selfTestAttention.js'
import { checkExperts } from './selfTestExperts.js'
import { differs, EXACT, FAST, noise, runAndRead } from './selfTestTools.js'

const ROWS = 16 // of a matrix that are compared
const TOKENS = 3

/** What is wrong, in a few words; null where all is well. `error`: for tests, added to what the GPU gives. */
export async function selfTest(
  parts: LayerParts,
  weights: ResidentWeights,
  packed: PackedModel,
  error = 0,
): Promise<string | null> {
  const { gpu, config, space } = parts
  const { hiddenSize } = config
  const x = noise(TOKENS * hiddenSize)
  const { queue } = gpu.device
  queue.writeBuffer(space.hidden, 0, x)
  queue.writeBuffer(space.normed.values, 0, x)
  queue.writeBuffer(space.status, 0, new Uint32Array(4))
  queue.writeBuffer(space.step, 0, new Uint32Array([TOKENS, 1, 0, 0]))
  const run = async (op: Op, tokens: number, buffer: GPUBuffer, length: number) =>
    (await runAndRead(gpu.device, op, tokens, buffer, length)).map(value => value + error)
  const check = { parts, packed, x, run, isWrong: error !== 0 }
  return (
    (await checkRouter(check, weights.layers)) ??
    (await checkProducts(check, weights.layers[0])) ??
    (await checkOutput(check, weights.layers[0])) ??
    (await checkLinear(check, weights.layers)) ??
    (await checkExperts(parts, x, TOKENS, run)) ??
    (await checkAttention(parts, packed, weights.layers, TOKENS, run))
  )
}

interface Check {
  readonly parts: LayerParts
  readonly packed: PackedModel
  readonly x: Float32Array // [TOKENS, hidden], in `hidden` and `normed`
  run(op: Op, tokens: number, buffer: GPUBuffer, length: number): Promise<Float32Array>
  readonly isWrong: boolean // a test has made it so
}

/** One token through the first router, in float32 with the norm, and its choice. */
async function checkRouter(check: Check, layers: readonly LayerWeights[]): Promise<string | null> {
  const { parts, packed, x, run, isWrong } = check
  const { gpu, config, space } = parts
  const { hiddenSize, rmsNormEps: eps, numExperts } = config
  const index = layers.findIndex(({ feedForward }) => feedForward.kind === 'moe')
  const layer = layers[index]
  const tensors = packed.tensors.layers[index]
  if (layer?.feedForward.kind !== 'moe' || tensors?.feedForward.kind !== 'moe') return null
  const { router: rows, routerBias, selectionBias, shape } = layer.feedForward
  const { status, hidden, logits } = space
  const norm = { weight: layer.postNorm, eps }
  const route = { status, outStride: space.shape.logitsStride, norm, bias: routerBias, exact: true, label: 'router' }
  const routed = await run(await matVecOp(gpu, rows, hidden, logits, route), 1, logits, numExperts)
  const postNorm = await readVector(tensors.postAttentionNorm, packed.weights)
  const normed = rmsNorm(x.subarray(0, hiddenSize), postNorm, eps)
  const want = await firstRows(packed, tensors.feedForward.router, normed, tensors.feedForward.routerBias)
  const wrong = differs('the router', routed, want, EXACT)
  if (wrong !== null || isWrong) return wrong
  const buffers = { ...space, selectionBias, slotTable: expertsOf(parts).table.rows }
  const choose = await routerOp(gpu, space.shape, shape, buffers, 0, null)
  const choice = await runAndRead(gpu.device, choose, 1, space.choice, space.shape.k)
  const chosen = [...new Uint32Array(choice.buffer)]
  const bias =
    tensors.feedForward.selectionBias && (await readVector(tensors.feedForward.selectionBias, packed.weights))
  const wanted = [...router(routed, numExperts, space.shape.k, shape.router, bias).indices]
  return chosen.join() === wanted.join() ? null : `top-k gives ${chosen}, want ${wanted}`
}

/** The mixer's projections, for one token and for several. */
async function checkProducts({ parts, packed, x, run }: Check, layer: LayerWeights): Promise<string | null> {
  const { gpu, config, space } = parts
  const { hiddenSize, rmsNormEps: eps } = config
  const { status, step, hidden, mixerIn } = space
  const { mixer, inputNorm } = packed.tensors.layers[0]
  const { inProj } = layer.mixer
  const inBias = layer.mixer.kind === 'full_attention' ? layer.mixer.inBias : null
  const [first, bias] = mixer.kind === 'full_attention' ? [mixer.qProj, mixer.qBias] : [mixer.inProjQkv, null]
  const most = gpu.fast && formatOf(first).bits < 16 ? FAST : EXACT
  const width = inProj.flatMap(part => part.segments).reduce((sum, { rows }) => sum + rows, 0)
  const norm = { weight: layer.inputNorm, eps }
  const common = { outStride: width, bias: inBias, label: 'inProj' }
  const one = await matVecOp(gpu, inProj, hidden, mixerIn, { status, norm, ...common })
  const normed = rmsNorm(x.subarray(0, hiddenSize), await readVector(inputNorm, packed.weights), eps)
  const oneWant = await firstRows(packed, first, normed, bias)
  const wrong = differs('a product with one token', await run(one, 1, mixerIn, width), oneWant, most)
  if (wrong !== null) return wrong
  const many = await matMulOp(gpu, inProj, space.normed, mixerIn, { step, maxTokens: space.shape.maxTokens, ...common })
  const got = await run(many, TOKENS, mixerIn, TOKENS * width)
  const last = await firstRows(packed, first, x.subarray((TOKENS - 1) * hiddenSize), bias)
  return differs('a product with many tokens', got.subarray((TOKENS - 1) * width), last, most)
}

/** The mixer's output projection, for several tokens: it is narrow, and may be cut otherwise than others. */
async function checkOutput({ parts, packed, run }: Check, { mixer: weights }: LayerWeights): Promise<string | null> {
  const { gpu, config, space } = parts
  const { step, mixed, mixerOut, shape } = space
  const { mixer } = packed.tensors.layers[0]
  const [matrix, bias] = mixer.kind === 'full_attention' ? [mixer.oProj, mixer.oBias] : [mixer.outProj, null]
  const outBias = weights.kind === 'full_attention' ? weights.outBias : null
  const x = noise(TOKENS * matrix.cols)
  gpu.device.queue.writeBuffer(mixed.values, 0, x)
  const width = config.hiddenSize
  const options = { step, maxTokens: shape.maxTokens, outStride: width, bias: outBias, label: 'outProj' }
  const got = await run(
    await matMulOp(gpu, weights.outProj, mixed, mixerOut, options),
    TOKENS,
    mixerOut,
    TOKENS * width,
  )
  const want = await firstRows(packed, matrix, x.subarray((TOKENS - 1) * matrix.cols), bias)
  const most = gpu.fast && formatOf(matrix).bits < 16 ? FAST : EXACT
  return differs('an output projection', got.subarray((TOKENS - 1) * width), want, most)
}

/** The delta rule of the first linear layer, one token from the empty state. */
async function checkLinear({ parts, packed, run }: Check, layers: readonly LayerWeights[]): Promise<string | null> {
  const { gpu, config, space, states, kv } = parts
  const index = config.layerKinds.indexOf('linear_attention')
  const layer = layers[index]?.mixer
  const tensors = packed.tensors.layers[index]?.mixer
  if (layer?.kind !== 'linear_attention' || tensors?.kind !== 'linear_attention') return null
  const { linearValueHeads: heads, linearValueDim: valueDim } = config
  const inputs = noise(linearColumns(config).stride)
  gpu.device.queue.writeBuffer(space.mixerIn, 0, inputs)
  const stateOut = states.take()
  try {
    const plan = { tokens: [0], position: 0, pages: [0], stateIn: EMPTY_STATE, stateOut }
    new StepInfo(gpu.device, config, space, kv).write([plan])
    const { status, tokenInfo, runInfo, mixerIn, mixed } = space
    const buffers = { constants: layer.stepConstants, tokenInfo, runInfo, status, inputs: mixerIn, out: mixed.values }
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

/** The first rows of a matrix times x, plus a bias, on the CPU. */
async function firstRows(
  packed: PackedModel,
  matrix: Matrix,
  x: Float32Array,
  bias: Vector | null,
): Promise<Float32Array> {
  const rows = Math.min(ROWS, matrix.rows)
  const cut = ({ offset, size }: { offset: number; size: number }) => ({ offset, size: (size / matrix.rows) * rows })
  const weight = cut(matrix.weight)
  const part: Matrix =
    matrix.kind === 'plain'
      ? { ...matrix, rows, weight }
      : matrix.kind === 'blocks'
        ? { ...matrix, rows, weight, scales: cut(matrix.scales) }
        : { ...matrix, rows, weight, scales: cut(matrix.scales), biases: cut(matrix.biases) }
  const added = bias && (await readVector(bias, packed.weights)).subarray(0, rows)
  return addBias(matVec(await readMatrix(part, packed.weights), x), added)
}
