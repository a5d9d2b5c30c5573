// The ops of layers for single tokens. Norms are part of the products that need them, the residual adds part of those
// that make them, and the shared expert is one more expert where it has their shape: a linear layer is seven dependent
// dispatches, a full-attention layer eight. Where every expert is in a slot, the choice is part of the experts' first product, and they are
// six and seven.
import { type Op, sequence } from '../../../gpu/device/op.js'
import type { MatrixPart } from '../../../gpu/memory/matrixWeights.js'
import type { SlotMatrix } from '../../../gpu/memory/slotLayout.js'
import type { Activation } from '../../../model/layers.js'
import { linearColumns } from '../../../model/linearShape.js'
import { attentionReduceOp } from '../../../ops/attention/attentionReduce.gpu.js'
import { attentionColumns } from '../../../ops/attention/attentionShape.gpu.js'
import { attentionStepOp } from '../../../ops/attention/attentionStep.gpu.js'
import { linearStepOp } from '../../../ops/gatedDelta/gatedDeltaStep.gpu.js'
import { expertMatVecOp, matVecOp, type OwnChoice } from '../../../ops/matmul/matVec.gpu.js'
import { expertDownOp } from '../../../ops/moe/expertDown.gpu.js'
import { choiceConstants, routerOp } from '../../../ops/router/router.gpu.js'
import type { BlockWeights, LayerWeights, MoeWeights } from '../memory/layerWeights.js'
import type { ResidentWeights } from '../memory/residentWeights.js'
import { LONGEST_RUN } from '../memory/workspace.js'
import { expertsOf, type LayerParts } from '../prefill/prefillLayer.js'

/** A layer with experts. */
export interface DecodeLayer {
  /** All since the experts of the layer before, layers without experts too, up to where the router and the shared expert begin. */
  readonly mixer: Op
  readonly routing: Routing
  /** The same, with guesses of what the next layers will choose. */
  readonly routingAhead: Routing
  /** Shared and routed experts, added to hidden. */
  readonly experts: Op
  /** The same as a router's `route` and `experts`, where every expert of the layer is in a slot. */
  readonly resident: Op
}

export interface Routing {
  /** The router's logits alone. */
  readonly logits: Op
  /** The router's logits and its choice: sets the miss flag. */
  readonly route: Op
  /** Only the choice again, after a miss. */
  readonly choose: Op
  /** Layers that guesses are made for. */
  readonly ahead: number
}

export interface DecodeOptions {
  readonly splits: number
  readonly attentionParts: GPUBuffer // [tokens, heads, splits, headDim + 4]
  readonly ahead: number // layers whose choice is guessed
}

export interface DecodeLayers {
  readonly layers: readonly DecodeLayer[] // those with experts
  readonly rest: Op // layers after the last of them
}

/** Layers without experts become part of the next one that has some. */
export async function decodeLayers(
  parts: LayerParts,
  weights: ResidentWeights,
  options: DecodeOptions,
): Promise<DecodeLayers> {
  const made = await Promise.all(weights.layers.map((layer, i) => layerOps(parts, weights, layer, i, options)))
  const layers: DecodeLayer[] = []
  let before: Op[] = []
  for (const { mixer, rest } of made) {
    before.push(mixer)
    if (typeof rest === 'function') before.push(rest)
    else {
      layers.push({ ...rest, mixer: sequence([...before, rest.shared]) })
      before = []
    }
  }
  return { layers, rest: sequence(before) }
}

/** A layer whose experts are all in slots, alone. */
export async function wholeLayer(
  parts: LayerParts,
  weights: ResidentWeights,
  layer: LayerWeights,
  index: number,
  options: DecodeOptions,
): Promise<Op> {
  const { mixer, rest } = await layerOps(parts, weights, layer, index, options)
  if (typeof rest === 'function') return sequence([mixer, rest])
  return sequence([mixer, rest.shared, rest.resident])
}

async function layerOps(
  parts: LayerParts,
  weights: ResidentWeights,
  layer: LayerWeights,
  index: number,
  options: DecodeOptions,
): Promise<{ mixer: Op; rest: MoeOps | Op }> {
  const { feedForward } = layer
  const [mixer, rest] = await Promise.all([
    mixerOps(parts, layer, index, options),
    feedForward.kind === 'moe' ? moeOps(parts, weights, layer, feedForward, options) : denseOps(parts, layer),
  ])
  return { mixer, rest }
}

type MoeOps = Omit<DecodeLayer, 'mixer'> & {
  /** What of a shared expert apart from the others can be computed before the router is. */
  readonly shared: Op
}

async function moeOps(
  parts: LayerParts,
  allWeights: ResidentWeights,
  layer: LayerWeights,
  weights: MoeWeights,
  options: DecodeOptions,
): Promise<MoeOps> {
  const { gpu, space } = parts
  const { table, layouts } = expertsOf(parts)
  const { place, shape } = weights
  const isInSlot = table.sharedSlot(place) !== null
  const apart = isInSlot ? null : weights.shared
  const [routing, experts, expertDown, block, choosing] = await Promise.all([
    routingOps(parts, allWeights, layer, weights, options),
    expertOps(parts, layer, weights, null),
    expertDownOp(gpu, layouts[place], table.pool(place), space, shape, isInSlot),
    apart && blockOps(parts, layer, apart, shape.activation, 'shared'),
    choosesItself(parts, weights) ? expertOps(parts, layer, weights, ownChoice(parts, weights)) : null,
  ])
  const { route, logits } = routing.routing
  const down = block?.down ?? NOTHING
  return {
    ...routing,
    shared: block?.gateUp ?? NOTHING,
    experts: sequence([down, experts, expertDown]),
    resident: sequence(choosing === null ? [route, down, experts, expertDown] : [logits, down, choosing, expertDown]),
  }
}

/** Whether one product can take the choice along: it is the only one, may bind as much, and has a thread for each of the chosen. */
function choosesItself(parts: LayerParts, { place, selectionBias }: MoeWeights): boolean {
  const { device, tuning } = parts.gpu
  const { gate, up } = expertsOf(parts).layouts[place]
  const buffers = selectionBias === null ? 9 : 10
  const hasThreads = parts.space.shape.k <= Math.min(tuning.WG, 64)
  return isSameFormat(gate, up) && hasThreads && device.limits.maxStorageBuffersPerShaderStage >= buffers
}

function ownChoice(parts: LayerParts, { place, shape, selectionBias }: MoeWeights): OwnChoice {
  const { space } = parts
  const { table } = expertsOf(parts)
  const sharedSlot = table.sharedSlot(place)
  return {
    constants: choiceConstants(parts.gpu, space.shape, shape.router, sharedSlot === null ? 'none' : shape.shared),
    ...{ logits: space.logits, slotTable: table.rows, selectionBias, choice: space.choice, layer: place, sharedSlot },
  }
}

const NOTHING: Op = () => {}

/** A whole feed-forward block, added to hidden. */
async function denseOps(parts: LayerParts, layer: LayerWeights): Promise<Op> {
  const { feedForward } = layer
  if (feedForward.kind !== 'dense') throw new Error('not a dense layer')
  const { gateUp, down } = await blockOps(parts, layer, feedForward.block, feedForward.shape.activation, 'dense')
  return sequence([gateUp, down])
}

/** A block that every token goes through: `shared` is left for expertDown to add, `dense` is added at once. */
async function blockOps(
  { gpu, config, space }: LayerParts,
  { postNorm }: LayerWeights,
  { gateUp, down, width }: BlockWeights,
  activation: Activation,
  kind: 'shared' | 'dense',
): Promise<{ gateUp: Op; down: Op }> {
  const { status, hidden, denseGateUp, sharedOut } = space
  const norm = { weight: postNorm, eps: config.rmsNormEps }
  const into = { status, outStride: 2 * width, norm, label: `${kind}GateUp` }
  const out = { status, outStride: config.hiddenSize, activation, add: kind === 'dense', label: `${kind}Down` }
  const [gateUpOp, downOp] = await Promise.all([
    matVecOp(gpu, gateUp, hidden, denseGateUp, into),
    matVecOp(gpu, down, denseGateUp, kind === 'dense' ? hidden : sharedOut, out),
  ])
  return { gateUp: gateUpOp, down: downOp }
}

async function routingOps(
  parts: LayerParts,
  allWeights: ResidentWeights,
  layer: LayerWeights,
  weights: MoeWeights,
  options: DecodeOptions,
): Promise<Pick<DecodeLayer, 'routing' | 'routingAhead'>> {
  const { gpu, config, space } = parts
  const { table } = expertsOf(parts)
  const { status, hidden, logits } = space
  const { place, shape, selectionBias } = weights
  const layers = config.expertLayers.length // rows of the choice before those of guesses
  const sharedSlot = table.sharedSlot(place)
  const spareSlot = table.spareSlot(place)
  const leftRow = layers + options.ahead
  const norm = { weight: layer.postNorm, eps: config.rmsNormEps }
  const build = async (router: readonly MatrixPart[], ahead: number): Promise<Routing> => {
    const { logitsStride: outStride } = space.shape
    const product = { status, outStride, norm, bias: weights.routerBias, exact: true, label: 'router' }
    const buffers = { ...space, selectionBias, slotTable: table.rows }
    const [logitsOp, choose] = await Promise.all([
      matVecOp(gpu, router, hidden, logits, product),
      routerOp(gpu, space.shape, shape, buffers, place, { sharedSlot, ahead, layers, spareSlot, leftRow }),
    ])
    return { logits: logitsOp, route: sequence([logitsOp, choose]), choose, ahead }
  }
  const routing = await build(weights.router, 0)
  const ahead = Math.min(options.ahead, config.moeLayers.length - 1 - place) // -1 in a head for drafts
  const wider = ahead > 0 ? allWeights.routers.withNext(place, ahead) : null
  return { routing, routingAhead: wider === null ? routing : await build([wider], ahead) }
}

/** The mixer, added to hidden. */
function mixerOps(parts: LayerParts, weights: LayerWeights, layer: number, options: DecodeOptions): Promise<Op> {
  const { gpu, config, space, states, kv } = parts
  const { status, tokenInfo, runInfo, hidden, mixerIn, angles, mixed } = space
  const { mixer } = weights
  const norm = { weight: weights.inputNorm, eps: config.rmsNormEps }
  const project = (outStride: number, bias: GPUBuffer | null) =>
    matVecOp(gpu, mixer.inProj, hidden, mixerIn, { status, outStride, norm, bias, label: 'inProj' })
  const outProject = (bias: GPUBuffer | null) =>
    matVecOp(gpu, mixer.outProj, mixed.values, hidden, {
      status,
      outStride: config.hiddenSize,
      add: true,
      bias,
      label: 'outProj',
    })
  if (mixer.kind === 'linear_attention') {
    const buffers = { constants: mixer.stepConstants, tokenInfo, runInfo, status, inputs: mixerIn, out: mixed.values }
    return all([
      project(linearColumns(config).stride, null),
      linearStepOp(gpu, config, buffers, states, layer),
      outProject(null),
    ])
  }
  const { shape, sinks } = mixer
  const { splits, attentionParts } = options
  const input = { norms: mixer.qkNorms, tokenInfo, angles, inputs: mixerIn }
  const attend = { ...input, parts: attentionParts, sinks, out: mixed.values }
  const longestRun = config.draftHead === null ? 1 : LONGEST_RUN
  const how = { splits, longestRun, isHead: layer === config.numLayers }
  return all([
    project(attentionColumns(config, shape).stride, mixer.inBias),
    attentionStepOp(gpu, config, shape, attend, kv, layer, how),
    attentionReduceOp(gpu, config, shape, attend, splits),
    outProject(mixer.outBias),
  ])
}

function isSameFormat(gate: SlotMatrix, up: SlotMatrix): boolean {
  return JSON.stringify(gate.format) === JSON.stringify(up.format)
}

async function expertOps(
  parts: LayerParts,
  { postNorm }: LayerWeights,
  { place }: MoeWeights,
  own: OwnChoice | null,
): Promise<Op> {
  const { gpu, config, space } = parts
  const { table, layouts } = expertsOf(parts)
  const { gate, up, stride } = layouts[place]
  const { status, hidden, mixing, expertGateUp, shape } = space
  const width = config.moeIntermediateSize
  const ranks = shape.k + (table.sharedSlot(place) === null ? 0 : 1)
  const norm = { weight: postNorm, eps: config.rmsNormEps }
  const options = { status, outStride: 2 * width, norm, label: 'expertGateUp' }
  const at = (matrix: SlotMatrix, out: number) => ({ ...matrix, out })
  const groups = isSameFormat(gate, up) ? [[at(gate, 0), at(up, width)]] : [[at(gate, 0)], [at(up, width)]]
  return all(
    groups.map(segments => {
      const [{ format, cols }] = segments
      const weights = { pool: table.pool(place), slotStride: stride, format, cols, segments }
      return expertMatVecOp(gpu, { ...weights, x: hidden, y: expertGateUp, mixing, k: ranks, own }, options)
    }),
  )
}

async function all(ops: readonly Promise<Op>[]): Promise<Op> {
  return sequence(await Promise.all(ops))
}
