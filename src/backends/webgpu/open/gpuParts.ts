// What a model takes of a GPU's memory besides experts, piece by piece: the sum of the very functions by which the buffers
// are made. Pure.
import { HARDWARE_TUNING, type Tuning } from '../../../gpu/device/gpuContext.js'
import { kvPoolBytes, plannedPages } from '../../../gpu/memory/kvPool.js'
import { plannedStates, statePoolBytes } from '../../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../../model/config.js'
import { allLayerKinds } from '../../../model/sizes.js'
import { attentionPartsBytes } from '../../../ops/attention/attentionShape.gpu.js'
import { logitsStride } from '../../../ops/router/router.gpu.js'
import type { PlannedState, Precision } from '../../backend.js'
import type { BudgetPart } from '../../plan.js'
import { headBytes } from '../decode/lmHead.js'
import { chainBytes } from '../draft/draftRunner.js'
import { stagingBytes } from '../experts/expertUploads.js'
import { MAX_DECODE_BATCH, workspaceBytes } from '../memory/workspace.js'

/** Tokens of a prompt in one step. */
export const CHUNK_TOKENS = 512
/** The same at most on a GPU that is fast and has room: experts are loaded less often. */
export const LONG_CHUNK_TOKENS = 2048

/** Many small buffers with constants of kernels, which a driver lays into few large ones. */
const CONSTANTS_PER_LAYER = 64 * 1024

/** What the plan has to know of a model. */
export interface GpuModel {
  readonly config: ModelConfig
  readonly expertsPerToken: number
  readonly precision: Precision
  readonly weightBytes: number // of resident weights, see residentWeightsBytes
  readonly slotBytes: number // from one expert to the next; 0: there are none
  readonly recordBytes: number // of an expert on disk
  /** Shared experts lie beside the others. */
  readonly hasShared: boolean
  readonly planned: PlannedState
  readonly maxBufferBytes: number // of a buffer, and of what a kernel sees of it
  readonly chunkTokens?: number
  readonly tensors?: boolean // experts may go to matrix units
  readonly tuning?: Pick<Tuning, 'SPLITS' | 'AHEAD' | 'PAIR_TILE'>
}

export function gpuParts(model: GpuModel): BudgetPart[] {
  const { config, planned, maxBufferBytes, slotBytes } = model
  const { expertLayers, numExperts } = config
  const fast = model.precision === 'fast'
  const tuning = model.tuning ?? HARDWARE_TUNING
  const shape = {
    experts: numExperts,
    k: model.expertsPerToken,
    maxTokens: model.chunkTokens ?? CHUNK_TOKENS,
    logitsStride: logitsStride(numExperts, 0),
    pairTile: tuning.PAIR_TILE,
    isPadded: model.tensors === true,
  }
  const tables = 2 * expertLayers.length * numExperts * 4
  return [
    // Every pool of slots begins with shared experts, or with a spare slot: at most one a layer.
    { what: 'weights', bytes: model.weightBytes + expertLayers.length * slotBytes },
    { what: 'recurrent state', bytes: statePoolBytes(config, plannedStates(planned, config), maxBufferBytes) },
    {
      what: `keys and values of ${planned.tokens} tokens`,
      bytes: kvPoolBytes(config, plannedPages(planned), maxBufferBytes),
    },
    {
      what: 'workspace',
      bytes:
        workspaceBytes(config, shape, fast) +
        headBytes(config, fast) +
        decodeBytes(config, shape.k, tuning) +
        promptBytes(config, shape.k, shape.maxTokens) +
        (config.draftHead === null ? 0 : chainBytes(config.rope.dims)) +
        allLayerKinds(config).length * CONSTANTS_PER_LAYER,
    },
    { what: 'staging', bytes: stagingBytes(slotBytes, model.recordBytes) + tables },
  ]
}

/** Choices and their way back, rows of hidden that come and go where the host computes too. */
function decodeBytes(config: ModelConfig, k: number, { SPLITS, AHEAD }: Pick<Tuning, 'SPLITS' | 'AHEAD'>): number {
  const choice = (config.expertLayers.length + AHEAD + 1) * MAX_DECODE_BATCH * k * 4
  const logits = MAX_DECODE_BATCH * logitsStride(config.numExperts, AHEAD) * 4
  const rows = MAX_DECODE_BATCH * config.hiddenSize * 4
  const mixing = MAX_DECODE_BATCH * (k + 1) * 8
  return attentionPartsBytes(config, MAX_DECODE_BATCH, SPLITS) + 2 * choice + logits + 2 * rows + mixing
}

/** The same for prompts. */
function promptBytes(config: ModelConfig, k: number, tokens: number): number {
  const choices = config.expertLayers.length * tokens * k * 4
  const rows = tokens * config.hiddenSize * 4
  return choices + 2 * rows + tokens * k * 16
}
