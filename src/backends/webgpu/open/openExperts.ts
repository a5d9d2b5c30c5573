// Opens what a model with experts needs beside its other weights: who reads them, who computes those that are not on the GPU, and
// the slots that they lie in. In two halves, since the staging of resident weights has room before that of experts is made.
import { BackendUnavailableError } from '../../../base/errors.js'
import { DEFAULT_FILLS_PER_STEP, DEFAULT_MOVES_PER_STEP, ExpertTiers } from '../../../experts/expertTiers.js'
import { chooseWay, type TierWay } from '../../../experts/tierSpeed.js'
import type { PackedModel } from '../../../files/packed/packedModel.js'
import { pathsOf } from '../../../files/source.js'
import type { GpuDevice } from '../../../gpu/device/gpuDevice.js'
import { leastSlots, type SlotMove, sharedMoves, slotLayouts } from '../../../gpu/memory/slotLayout.js'
import { allLayers } from '../../../model/tensorParts.js'
import type { HostedOptions } from '../../wasm/platform.js'
import type { HostWorkers } from '../../wasm/workers/expertWorkers.js'
import type { HostTier } from '../experts/cpuTier.js'
import { type ExpertReader, sourceExpertReader } from '../experts/expertReader.js'
import { STAGING_BUFFERS } from '../experts/loader.js'
import { Residency } from '../experts/residency.js'
import type { SlotExperts } from '../prefill/prefillLayer.js'
import { type GpuModel, poolRequest } from './gpuPlan.js'
import type { Room } from './gpuReservation.js'
import { measureTiers } from './measureTiers.js'
import { openHostTier, type TierPlace } from './openCpuTier.js'
import { sourceTierPlace } from './sourceCpuTier.js'

export interface ExpertRequest {
  readonly packed: PackedModel
  readonly options: HostedOptions
  readonly model: GpuModel
  readonly room: Room
  readonly place: TierPlace | null
  readonly chunkTokens: number
  readonly isSoftware: boolean // the GPU
  /** For tests: what to do about experts that are not on the GPU, instead of measuring. */
  readonly way?: (threads: number) => TierWay
}

export interface ExpertSources {
  readonly tier: HostTier | null // the experts that the GPU has no room for
  readonly reader: ExpertReader
}

/** `undo`: gets what is to be done where opening fails later. */
export async function openSources(
  device: GPUDevice,
  request: ExpertRequest,
  undo: (() => Promise<void>)[],
): Promise<ExpertSources> {
  const { packed, options, place, room, chunkTokens, isSoftware } = request
  const { memorySlots } = room.plan
  const how = {
    sharesProcessors: isSoftware,
    measure: (workers: HostWorkers) => measure(device, request, workers),
    tiersOf: (slots: number, way: TierWay) => tiersOf(request, slots, way),
  }
  const tier =
    place !== null && memorySlots > 0 ? await openHostTier(packed, options, chunkTokens, memorySlots, how, place) : null
  if (tier !== null) undo.push(() => tier.close())
  const disk = await openReader(packed, options)
  undo.push(() => disk.close())
  return { tier, reader: tier === null ? disk : tier.readerBefore(disk) }
}

/** Experts in GPU memory, and what kernels know of them. */
interface OpenedSlots extends SlotExperts {
  readonly slots: Residency
}

export async function openSlots(
  { device, lost }: GpuDevice,
  { packed, model, room }: ExpertRequest,
  { tier, reader }: ExpertSources,
): Promise<OpenedSlots> {
  const { config, experts, tensors } = packed
  const layouts = slotLayouts(experts.layouts)
  const { pools } = room
  const plan = {
    ...{ config, layouts, pools, leastSlots: leastSlots(poolRequest(model)) },
    recordBytes: experts.layout.expertSize,
    fileNames: experts.files.map(file => file.name),
  }
  const slots = await Residency.create(device, plan, room.buffers, reader, tier)
  if (tier !== null) tier.above = slots
  lost.catch(error => slots.lose(error))
  const layers = allLayers(tensors)
  const shared = config.expertLayers.map((layer, place) => sharedMoves(layers[layer], layouts[place]))
  if (pools.hasShared) await slots.table.loadShared(packed.weights, shared as SlotMove[][])
  return { slots, table: slots.table, layouts }
}

/** Where the processors may compute experts beside the GPU; null: nowhere, since nothing can be shared with threads. */
export async function tierPlace(packed: PackedModel, options: HostedOptions): Promise<TierPlace | null> {
  if (packed.config.expertLayers.length === 0) return null
  const files = filesOf(packed)
  if (files !== null) {
    const { nodeTierPlace } = await import('./nodeCpuTier.js')
    return nodeTierPlace(packed, files, options)
  }
  return options.wasmHost?.shared ? sourceTierPlace(packed.experts, options.wasmHost) : null
}

async function measure(device: GPUDevice, request: ExpertRequest, workers: HostWorkers): Promise<TierWay> {
  const { packed, options, chunkTokens, way } = request
  if (way) return way(workers.threads)
  const { config } = packed
  const { expertsPerToken } = options
  const { expertSize } = packed.experts.layout
  const measured = {
    ...{ expertSize, expertsPerToken, hiddenSize: config.hiddenSize, maxRows: chunkTokens },
    isCountGiven: options.threads !== undefined,
  }
  const residentExperts = packed.weights.size / expertSize
  const alone = { layers: config.moeLayers.length, expertsPerToken, residentExperts }
  const chosen = chooseWay(await measureTiers(device, workers, measured), options.automatic ? alone : undefined)
  if (chosen.way === 'cpu') throw new BackendUnavailableError('webgpu', chosen.line)
  return chosen
}

function tiersOf({ packed, model, room }: ExpertRequest, memorySlots: number, { usesToPay }: TierWay): ExpertTiers {
  const { expertLayers, numExperts: experts } = packed.config
  const { poolOfLayer, slots: poolSlots } = room.pools
  const { slotBytes: expertBytes } = model
  const sizes = { layers: expertLayers.length, experts, expertBytes, poolOfLayer, poolSlots, memorySlots }
  const bytesPerStep = DEFAULT_MOVES_PER_STEP * expertBytes
  const rule = { bytesPerStep, usesToPay, fillsPerStep: DEFAULT_FILLS_PER_STEP }
  return new ExpertTiers({ ...sizes, policy: 'lrfu' }, rule, { stagingBuffers: STAGING_BUFFERS })
}

/** In Node files are read by threads of their own; elsewhere, and from memory, the source itself is asked. */
async function openReader(packed: PackedModel, options: HostedOptions): Promise<ExpertReader> {
  const files = filesOf(packed)
  if (files !== null) {
    const { nodeExpertReader } = await import('../experts/nodeExpertReader.js')
    return nodeExpertReader(packed.experts, files, options, STAGING_BUFFERS)
  }
  return sourceExpertReader(packed.experts)
}

/** Where experts are in files that threads of Node can read. */
function filesOf({ experts }: PackedModel): string[] | null {
  return globalThis.process?.versions?.node === undefined ? null : pathsOf(experts.files)
}
