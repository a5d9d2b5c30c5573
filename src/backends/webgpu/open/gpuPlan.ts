// Where a model's experts go when its other math runs on a GPU: what the GPU must hold before the
// first expert, how many experts then fit, how many go to memory by the rule of backends/plan.ts,
// and how many stay on disk. Pure: sizes in, numbers and one line for users out. How much a GPU
// gives is found out in gpuReservation.ts.
import { OptionError } from '../../../base/errors.js'
import { MemoryPlanError } from '../../../base/memoryErrors.js'
import type { MemoryFacts } from '../../../base/memoryFacts.js'
import { passagesOf } from '../../../experts/expertTiers.js'
import { HARDWARE_TUNING, type Tuning } from '../../../gpu/device/gpuContext.js'
import { kvPoolBytes, plannedPages } from '../../../gpu/memory/kvPool.js'
import { leastSlots, type PoolPlan, type PoolRequest, planPools } from '../../../gpu/memory/slotLayout.js'
import { plannedStates, statePoolBytes } from '../../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../../model/config.js'
import { allLayerKinds } from '../../../model/sizes.js'
import { attentionPartsBytes } from '../../../ops/attention/attentionShape.gpu.js'
import { logitsStride } from '../../../ops/router/router.gpu.js'
import type { PlannedState, Precision } from '../../backend.js'
import { type BudgetPart, type HostSide, planBudget } from '../../plan.js'
import { headBytes } from '../decode/lmHead.js'
import { chainBytes } from '../draft/draftRunner.js'
import { stagingBytes } from '../experts/loader.js'
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

/**
 * What a model takes of a GPU's memory besides experts, piece by piece: the sums of the very
 * functions by which the buffers are made.
 */
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

interface GpuPlanRequest {
  readonly model: GpuModel
  /** What the GPU gives to this program, all in all. */
  readonly gpuBytes: number
  /** What experts may take of it at most. */
  readonly gpuMemory?: number
  readonly askedBy?: 'gpuMemory' | 'expertMemory' // the option that said so
  /** null: nobody computes beside the GPU, and what does not fit is read again and again. */
  readonly host: HostSide | null
}

export interface GpuPlan {
  readonly parts: readonly BudgetPart[] // what the GPU holds besides experts
  readonly fixedBytes: number // of the parts
  /**
   * What the GPU lacks for the parts and the least experts; 0: it is large enough. Nothing below
   * counts where it is not.
   */
  readonly missing: number
  readonly pools: PoolPlan | null
  readonly gpuSlots: number
  readonly memorySlots: number
  readonly diskExperts: number // that are in neither
  /** What the machine's own memory is planned to hold of it all. */
  readonly memoryBytes: number
  /** For people. */
  readonly line: string
}

export function planGpu({ model, gpuBytes, gpuMemory, askedBy, host }: GpuPlanRequest): GpuPlan {
  const parts = gpuParts(model)
  const fixedBytes = sumOf(parts)
  const pooling = poolRequest(model)
  const { slotBytes } = model
  const least = leastSlots(pooling)
  const missing = Math.max(0, fixedBytes + least * slotBytes - gpuBytes)
  if (missing > 0) {
    const line = tooSmallText(model, parts, missing)
    return {
      parts,
      fixedBytes,
      missing,
      pools: null,
      gpuSlots: 0,
      memorySlots: 0,
      diskExperts: 0,
      memoryBytes: 0,
      line,
    }
  }
  const fitting = slotBytes === 0 ? 0 : Math.floor((gpuBytes - fixedBytes) / slotBytes)
  const pools = planPools(pooling, Math.min(fitting, askedSlots(gpuMemory, slotBytes, least, askedBy) ?? fitting))
  const gpuSlots = pools.slots * pools.pools
  const rest = Math.max(0, allExperts(model) - gpuSlots)
  const passages = pools.pools * passagesOf(pools.slots, pools.pools) // whose experts are in memory, too
  const memorySlots = host === null || rest === 0 ? 0 : hostSlots(host, rest + passages, model.expertsPerToken)
  const memoryBytes = host === null ? 0 : sumOf(host.way.parts) + memorySlots * host.way.slotCost
  const diskExperts = Math.max(0, rest - memorySlots)
  const line = splitText(model, fixedBytes, { gpuSlots, memorySlots, diskExperts, host })
  return { parts, fixedBytes, missing, pools, gpuSlots, memorySlots, diskExperts, memoryBytes, line }
}

interface SharedGpuRequest {
  readonly model: GpuModel
  readonly memory: MemoryFacts
  readonly programBytes: number // that the program takes besides
  /** What experts may take. */
  readonly expertMemory?: number
}

/**
 * A GPU that shares the machine's memory: one budget for both. Throws MemoryPlanError where it does
 * not fit.
 */
export function planSharedGpu({ model, memory, programBytes, expertMemory }: SharedGpuRequest): GpuPlan {
  const parts = gpuParts(model)
  const { planned, slotBytes } = model
  const pooling = poolRequest(model)
  const least = leastSlots(pooling)
  const isState = ({ what }: BudgetPart) => what.startsWith('keys and values')
  const ways = [
    {
      parts: [...parts.filter(part => !isState(part)), { what: 'the program', bytes: programBytes }],
      slotCost: Math.max(1, slotBytes),
      notice: null,
    },
  ]
  const { slots, bytes: memoryBytes } = planBudget({
    memory,
    ways,
    slotBytes,
    experts: allExperts(model),
    leastSlots: least,
    expertMemory,
    tokens: planned.tokens,
    tokenBytes: sumOf(parts.filter(isState)) / planned.tokens,
    isContext: planned.isContext,
    threads: { count: 1, bytes: 0 },
  })
  const pools = planPools(pooling, slots)
  const gpuSlots = pools.slots * pools.pools
  const diskExperts = Math.max(0, allExperts(model) - gpuSlots)
  const fixedBytes = sumOf(parts)
  const line = splitText(model, fixedBytes, { gpuSlots, memorySlots: 0, diskExperts, host: null })
  return { parts, fixedBytes, missing: 0, pools, gpuSlots, memorySlots: 0, diskExperts, memoryBytes, line }
}

/** How the slots of a model may be cut into buffers. */
export function poolRequest(model: GpuModel): PoolRequest {
  const { config, expertsPerToken: k, slotBytes: stride, maxBufferBytes, hasShared: wantsShared } = model
  return { layers: config.expertLayers.length, experts: config.numExperts, k, stride, maxBufferBytes, wantsShared }
}

export function allExperts({ config }: GpuModel): number {
  return config.expertLayers.length * config.numExperts
}

/** Throws OptionError where `gpuMemory` is less than experts need. */
export function checkAsked(model: GpuModel, gpuMemory: number): void {
  askedSlots(gpuMemory, model.slotBytes, leastSlots(poolRequest(model)))
}

function askedSlots(
  bytes: number | undefined,
  slotBytes: number,
  least: number,
  option: string = 'gpuMemory',
): number | null {
  if (bytes === undefined) return null
  const slots = Math.floor(bytes / slotBytes)
  if (slots >= least) return slots
  throw new OptionError(option, bytes, `at least ${least * slotBytes} bytes (${least} experts of ${slotBytes})`)
}

/** Where memory has no room for more than the program itself, experts come from disk to the GPU. */
function hostSlots({ memory, way, slotBytes, expertMemory, threads }: HostSide, rest: number, k: number): number {
  const state = { tokens: 0, tokenBytes: 0, isContext: false }
  const experts = { experts: Math.max(rest, 2 * k), leastSlots: 2 * k }
  try {
    return planBudget({ memory, ways: [way], slotBytes, expertMemory, threads, ...experts, ...state }).slots
  } catch (error) {
    if (error instanceof MemoryPlanError && expertMemory === undefined) return 0
    throw error
  }
}

function splitText(
  model: GpuModel,
  fixedBytes: number,
  split: { gpuSlots: number; memorySlots: number; diskExperts: number; host: HostSide | null },
): string {
  const { gpuSlots, memorySlots, diskExperts, host } = split
  const experts = (count: number, bytes: number) =>
    `${count.toLocaleString('en-US')} experts (${gigabytes(count * bytes)})`
  const fixed = `GPU: ${gigabytes(fixedBytes)} weights and state`
  if (allExperts(model) === 0) return fixed
  const gpu = `${fixed}, ${experts(gpuSlots, model.slotBytes)}`
  const below = Math.min(memorySlots, allExperts(model) - gpuSlots) // the other slots hold who passes through the GPU
  const held = host && `${below.toLocaleString('en-US')} experts (${gigabytes(memorySlots * host.slotBytes)})`
  const memory = host === null ? '' : `; memory: ${memorySlots === 0 ? '0' : held}`
  return `${gpu}${memory}; disk: ${diskExperts.toLocaleString('en-US')}`
}

function tooSmallText(model: GpuModel, parts: readonly BudgetPart[], missing: number): string {
  const { planned } = model
  const pieces = parts.map(({ what, bytes }) => `${what} ${gigabytes(bytes)}`).join(', ')
  const state = parts.find(({ what }) => what.startsWith('keys and values'))?.bytes ?? 0
  const tokenBytes = state / Math.max(1, planned.tokens)
  const tokens = (Math.floor((planned.tokens - missing / tokenBytes) / 64) - 1) * 64 // whole pages
  const remedy =
    planned.isContext && tokens >= 64 ? `contextLength ${tokens} would fit` : 'the processor can run it (backend wasm)'
  const what = allExperts(model) === 0 ? 'the model' : 'what it must hold before the first expert'
  return `the GPU's memory is too small by ${gigabytes(missing)} for ${what} (${pieces}); ${remedy}`
}

function gigabytes(bytes: number): string {
  return bytes < 95e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`
}

function sumOf(parts: readonly BudgetPart[]): number {
  return parts.reduce((sum, { bytes }) => sum + bytes, 0)
}
