// The buffers that a step's kernels pass rows through, made once for the most tokens that a step takes. Layers use the
// same ones in turn.
import type { ModelConfig } from '../../model/config.js'
import { type ActivationBuffers, activationBuffers } from './activationBuffers.js'
import { attentionColumns } from './attentionShape.js'
import type { GpuContext } from './gpuContext.js'
import { bufferUsage } from './gpuFlags.js'
import { groupsBytes } from './groupTokens.js'
import { storageBuffer } from './kernel.js'
import { linearColumns } from './linearShape.js'
import type { TopKShape } from './topK.js'

/** Tokens that decode together. */
export const MAX_DECODE_BATCH = 8

export interface Workspace {
  readonly shape: TopKShape
  readonly step: GPUBuffer // tokens, runs
  readonly tokenInfo: GPUBuffer // [tokens, 8]
  readonly runInfo: GPUBuffer // [runs, 4]
  readonly angles: GPUBuffer // [tokens, rotaryDim / 2, 2]
  readonly hidden: GPUBuffer // [tokens, hidden]
  readonly normed: ActivationBuffers // [tokens, hidden]
  readonly mixerIn: GPUBuffer // [tokens, in-projections]
  readonly convolved: GPUBuffer // [tokens, convDim]
  readonly queries: GPUBuffer // [tokens, heads * headDim]
  readonly mixed: ActivationBuffers // [tokens, heads * dim]: input of the out-projection
  readonly mixerOut: GPUBuffer // [tokens, hidden]
  readonly logits: GPUBuffer // [tokens, experts + 1]: router, then the shared expert's gate
  readonly choice: GPUBuffer // [layers, tokens, K]
  readonly mixing: GPUBuffer // [tokens, K, 2]; K + 1 where the shared expert is among them
  readonly status: GPUBuffer // [0] 1 + layer of the first miss
  readonly groups: GPUBuffer
  readonly sharedGateUp: GPUBuffer // [tokens, 2 * shared intermediate]
  readonly sharedAct: ActivationBuffers // [tokens, shared intermediate]
  readonly sharedOut: GPUBuffer // [tokens, hidden]
  readonly expertGateUp: GPUBuffer // [tokens * K, 2 * intermediate]
  readonly expertAct: ActivationBuffers // [tokens * K, intermediate]
  readonly expertRows: GPUBuffer // [tokens * K, hidden]
  readonly mlpOut: GPUBuffer // [tokens, hidden]
}

export function createWorkspace(gpu: GpuContext, config: ModelConfig, shape: TopKShape): Workspace {
  const { maxTokens: tokens, k } = shape
  const floats = (rows: number, width: number, label: string) => storageBuffer(gpu.device, rows * width * 4, label)
  const { hiddenSize, moeIntermediateSize, sharedExpertIntermediateSize } = config
  const mixedWidth = Math.max(config.numHeads * config.headDim, config.linearValueHeads * config.linearValueDim)
  const inWidth = Math.max(attentionColumns(config).stride, linearColumns(config).stride)
  return {
    shape,
    step: gpu.device.createBuffer({ label: 'step', size: 16, usage: bufferUsage.uniform | bufferUsage.copyDst }),
    tokenInfo: floats(tokens, 8, 'token info'),
    runInfo: floats(tokens, 4, 'run info'),
    angles: floats(tokens, config.rotaryDim, 'angles'),
    hidden: floats(tokens, hiddenSize, 'hidden'),
    normed: activationBuffers(gpu, tokens, hiddenSize, 'normed'),
    mixerIn: floats(tokens, inWidth, 'mixer in'),
    convolved: floats(tokens, config.linearConvDim, 'convolved'),
    queries: floats(tokens, config.numHeads * config.headDim, 'queries'),
    mixed: activationBuffers(gpu, tokens, mixedWidth, 'mixed'),
    mixerOut: floats(tokens, hiddenSize, 'mixer out'),
    logits: floats(tokens, shape.logitsStride, 'router logits'),
    choice: floats(config.numLayers * tokens, k, 'choice'),
    mixing: floats(tokens, 2 * (k + 1), 'mixing'),
    status: storageBuffer(gpu.device, 16, 'status'),
    groups: storageBuffer(gpu.device, groupsBytes(shape), 'groups'),
    sharedGateUp: floats(tokens, 2 * sharedExpertIntermediateSize, 'shared gate up'),
    sharedAct: activationBuffers(gpu, tokens, sharedExpertIntermediateSize, 'shared act'),
    sharedOut: floats(tokens, hiddenSize, 'shared out'),
    expertGateUp: floats(tokens * k + MAX_DECODE_BATCH, 2 * moeIntermediateSize, 'expert gate up'),
    expertAct: activationBuffers(gpu, tokens * k, moeIntermediateSize, 'expert act'),
    expertRows: floats(tokens * k, hiddenSize, 'expert rows'),
    mlpOut: floats(tokens, hiddenSize, 'mlp out'),
  }
}
