// The buffers that a step's kernels pass rows through, made once for the most tokens that a step
// takes. Layers of all kinds use the same ones in turn, so each is as wide as the widest layer
// needs.
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { countBytes, type MakeBuffer, storageBuffer } from '../../../gpu/device/kernel.js'
import { type ActivationBuffers, layActivations } from '../../../gpu/memory/activationBuffers.js'
import type { ModelConfig } from '../../../model/config.js'
import { linearColumns } from '../../../model/linearShape.js'
import { attentionColumns } from '../../../ops/attention/attentionShape.gpu.js'
import { groupsBytes, mostPlaces } from '../../../ops/moe/groupTokens.gpu.js'
import type { ChoiceShape } from '../../../ops/router/router.gpu.js'
import { MOST_GUESSES } from '../../backend.js'

/** Tokens that decode together. */
export const MAX_DECODE_BATCH = 8

/** Of one run: a token and guesses after it. */
export const LONGEST_RUN = 1 + MOST_GUESSES

interface WorkspaceBuffers<B> {
  readonly tokenInfo: B // [tokens, 8]
  readonly runInfo: B // [runs, 4]
  readonly angles: B // [tokens, rope.dims / 2, 2]
  readonly hidden: B // [tokens, hidden]
  readonly normed: ActivationBuffers<B> // [tokens, hidden]
  readonly mixerIn: B // [tokens, in-projections]
  readonly convolved: B // [tokens, convDim]
  readonly queries: B // [tokens, heads * headDim]
  readonly mixed: ActivationBuffers<B> // [tokens, heads * dim]: input of the out-projection
  readonly mixerOut: B // [tokens, hidden]
  readonly logits: B // [tokens, experts + 1]: router, then the shared expert's gate where it has one
  readonly choice: B // [layers with experts, a head's too, tokens, K], then their weights
  readonly mixing: B // [tokens, K, 2]; K + 1 where the shared expert is among them
  readonly status: B // [0] 1 + layer of the first miss
  readonly groups: B
  readonly denseGateUp: B // [tokens, 2 * width] of a shared expert or a dense layer
  readonly denseAct: ActivationBuffers<B> // [tokens, width]
  readonly sharedOut: B // [tokens, hidden]
  readonly expertGateUp: B // [tokens * K, 2 * intermediate]; rows of pairs in sixteens where they go to matrix units
  readonly expertAct: ActivationBuffers<B> // [tokens * K, intermediate]
  readonly expertRows: B // [tokens * K, hidden]
  readonly mlpOut: B // [tokens, hidden]
  readonly joined: ActivationBuffers<B> // [tokens, 2 * hidden]: what the head for drafts takes in; tiny without one
}

export interface Workspace extends WorkspaceBuffers<GPUBuffer> {
  readonly shape: ChoiceShape
  readonly step: GPUBuffer // tokens, runs
  readonly weightsRow: number // of `choice`: the weights of the first layer with experts
}

export function createWorkspace(gpu: GpuContext, config: ModelConfig, shape: ChoiceShape): Workspace {
  const { device, fast } = gpu
  return {
    shape,
    weightsRow: config.expertLayers.length,
    step: device.createBuffer({ label: 'step', size: 16, usage: bufferUsage.uniform | bufferUsage.copyDst }),
    ...layWorkspace((size, label) => storageBuffer(device, size, label), fast, config, shape),
  }
}

export function workspaceBytes(config: ModelConfig, shape: ChoiceShape, fast: boolean): number {
  return 16 + countBytes(make => layWorkspace(make, fast, config, shape))
}

function layWorkspace<B>(
  make: MakeBuffer<B>,
  fast: boolean,
  config: ModelConfig,
  shape: ChoiceShape,
): WorkspaceBuffers<B> {
  const { maxTokens: tokens, k } = shape
  const floats = (rows: number, width: number, label: string) => make(rows * width * 4, label)
  const activations = (rows: number, width: number, label: string) => layActivations(make, fast, rows, width, label)
  const { hiddenSize, moeIntermediateSize } = config
  const widths = layerWidths(config)
  const places = mostPlaces(shape, tokens)
  return {
    tokenInfo: floats(tokens, 8, 'token info'),
    runInfo: floats(tokens, 4, 'run info'),
    angles: floats(tokens, config.rope.dims, 'angles'),
    hidden: floats(tokens, hiddenSize, 'hidden'),
    normed: activations(tokens, hiddenSize, 'normed'),
    mixerIn: floats(tokens, widths.mixerIn, 'mixer in'),
    convolved: floats(tokens, config.linearConvDim, 'convolved'),
    queries: floats(tokens, config.numHeads * config.headDim, 'queries'),
    mixed: activations(tokens, widths.mixed, 'mixed'),
    mixerOut: floats(tokens, hiddenSize, 'mixer out'),
    logits: floats(tokens, shape.logitsStride, 'router logits'),
    choice: floats(2 * config.expertLayers.length * tokens, k, 'choice'),
    mixing: floats(tokens, 2 * (k + 1), 'mixing'),
    status: make(16, 'status'),
    groups: make(groupsBytes(shape), 'groups'),
    denseGateUp: floats(tokens, 2 * widths.dense, 'dense gate up'),
    denseAct: activations(tokens, widths.dense, 'dense act'),
    sharedOut: floats(tokens, hiddenSize, 'shared out'),
    expertGateUp: floats(places + MAX_DECODE_BATCH, 2 * moeIntermediateSize, 'expert gate up'),
    expertAct: activations(places, moeIntermediateSize, 'expert act'),
    expertRows: floats(places, hiddenSize, 'expert rows'),
    mlpOut: floats(tokens, hiddenSize, 'mlp out'),
    joined: activations(config.draftHead === null ? 0 : tokens, 2 * hiddenSize, 'joined'),
  }
}

/** The widest rows of a model's layers. */
interface LayerWidths {
  readonly mixerIn: number // columns of the in-projections
  readonly mixed: number // input of the out-projection
  readonly dense: number // of feed-forward blocks that every token goes through: shared experts, dense layers
}

function layerWidths(config: ModelConfig): LayerWidths {
  const layers = config.draftHead === null ? config.layers : [...config.layers, config.draftHead]
  const mixers = layers.map(({ mixer }) =>
    mixer.kind === 'full_attention'
      ? { mixerIn: attentionColumns(config, mixer).stride, mixed: config.numHeads * config.headDim }
      : { mixerIn: linearColumns(config).stride, mixed: config.linearValueHeads * config.linearValueDim },
  )
  const dense = layers.map(({ feedForward }) =>
    feedForward.kind === 'dense' ? feedForward.width : config.sharedExpertIntermediateSize,
  )
  return {
    mixerIn: Math.max(...mixers.map(({ mixerIn }) => mixerIn)),
    mixed: Math.max(...mixers.map(({ mixed }) => mixed)),
    dense: Math.max(...dense),
  }
}
