// Opens the webgpu backend: finds a device and room on it, decides who computes what does not fit, makes all parts, and lets the
// kernels show that they compute right.
import { BackendUnavailableError, MoefluxError, messageOf, OutOfMemoryError } from '../../../base/errors.js'
import { MemoryPlanError } from '../../../base/memoryErrors.js'
import type { TierWay } from '../../../experts/tierSpeed.js'
import { type PackedModel, withoutHead } from '../../../files/packed/packedModel.js'
import { type GpuContext, HARDWARE_TUNING, SOFTWARE_TUNING, type Tuning } from '../../../gpu/device/gpuContext.js'
import { type DeviceOptions, type GpuDevice, openDevice } from '../../../gpu/device/gpuDevice.js'
import { makeChecked } from '../../../gpu/device/gpuMemory.js'
import { KernelError, KernelSet } from '../../../gpu/device/kernel.js'
import { GentleWait } from '../../../gpu/device/readbackTimer.js'
import { Profiler } from '../../../gpu/device/recorder.js'
import { KvPool, plannedPages } from '../../../gpu/memory/kvPool.js'
import { plannedStates, StatePool } from '../../../gpu/memory/statePool.js'
import { kvLayers, layersOfKind } from '../../../model/sizes.js'
import { logitsStride } from '../../../ops/router/router.gpu.js'
import type { HostedOptions } from '../../wasm/platform.js'
import { selfTest } from '../check/selfTest.js'
import { ChunkPace } from '../chunkSizer.js'
import { DecodePass } from '../decode/decodePass.js'
import { Head } from '../decode/lmHead.js'
import { DraftChain } from '../draft/residentDraft.js'
import { DraftByPrompt } from '../draft/streamingDraft.js'
import { stagingBytes } from '../experts/loader.js'
import { NoExperts } from '../experts/residency.js'
import { loadResidentWeights } from '../memory/residentWeights.js'
import { StepInfo } from '../memory/stepInfo.js'
import { createWorkspace } from '../memory/workspace.js'
import { PromptPass } from '../prefill/prefillPass.js'
import { WebgpuBackend } from '../webgpuBackend.js'
import { gpuModelOf } from './gpuModel.js'
import { allExperts, CHUNK_TOKENS, LONG_CHUNK_TOKENS } from './gpuPlan.js'
import { takeRoomForChunks } from './gpuReservation.js'
import { hostSideOf } from './openCpuTier.js'
import { openSlots, openSources, tierPlace } from './openExperts.js'

export interface WebgpuOptions extends DeviceOptions {
  /** Measure the GPU time of every kernel: slower, and `profile()` then tells. */
  readonly timing?: boolean
  readonly chunkTokens?: number
  readonly tuning?: Partial<Tuning>
  /** For tests: an error in what kernels give to the self-test, by the kind of kernels. */
  readonly selfTestError?: (kernels: KernelKind) => number
  /** true: the device computes nothing (Dawn's null backend), and only the host's work is measured. */
  readonly isNull?: boolean
  /** For tests: what to do about experts that are not on the GPU, instead of measuring. */
  readonly way?: (threads: number) => TierWay
  /** For tests: whether the GPU shares the machine's memory, and what to leave of its own. */
  readonly isShared?: boolean
  readonly reserve?: number // bytes
}

export type KernelKind = 'tensors' | 'unchecked' | 'subgroups' | 'portable'

/** What is tried where kernels of a kind compute wrong numbers. */
const FALLBACKS: Record<KernelKind, { readonly how: string; readonly options: DeviceOptions } | null> = {
  tensors: { how: 'without matrix units', options: { tensors: false } },
  unchecked: { how: 'with every access checked', options: { checks: true } },
  subgroups: { how: 'with portable kernels', options: { checks: true, subgroups: false, packedDot: false } },
  portable: null,
}

/** Attempts to open with ever less. */
const MOST_REFUSALS = 3
const SOFTWARE_CHUNK_TOKENS = 64 // a chunk there takes seconds, and an abort waits for it

export async function openWebgpuBackend(
  packed: PackedModel,
  options: HostedOptions,
  gpuOptions: WebgpuOptions = {},
): Promise<WebgpuBackend> {
  return openBoldly(packed, { ...options, onNotice: eachOnce(options.onNotice) }, gpuOptions)
}

/** With all that was asked for; where it turns out that something cannot be had, once more without. */
async function openBoldly(
  packed: PackedModel,
  options: HostedOptions,
  gpuOptions: WebgpuOptions,
): Promise<WebgpuBackend> {
  if (!options.drafts) packed = withoutHead(packed)
  try {
    return await openModestly(packed, options, gpuOptions)
  } catch (error) {
    if (error instanceof NoRoomForHead) {
      options.onNotice?.('no guesses ahead: the GPU has no room for all experts and those of the head')
      return openBoldly(packed, { ...options, drafts: false }, gpuOptions)
    }
    const fallback = error instanceof SelfTestError ? FALLBACKS[error.kernels] : null
    if (fallback === null) throw error
    options.onNotice?.(`${messageOf(error)}; trying again ${fallback.how}`)
    return openBoldly(packed, options, { ...gpuOptions, ...fallback.options })
  }
}

/** However often opening begins anew, nothing is said twice. */
function eachOnce(onNotice: HostedOptions['onNotice']): (line: string) => void {
  const said = new Set<string>()
  return line => {
    if (!said.has(line)) onNotice?.(line)
    said.add(line)
  }
}

/** Memory that was there when it was planned with may be gone when it is wanted: then once more, with less. */
async function openModestly(packed: PackedModel, options: HostedOptions, gpuOptions: WebgpuOptions) {
  for (let refusals = 0; ; refusals++) {
    try {
      return await openOnce(packed, options, gpuOptions, refusals)
    } catch (error) {
      if (error instanceof MemoryPlanError && options.automatic) {
        throw new BackendUnavailableError('webgpu', error.message, { cause: error })
      }
      if (!(error instanceof OutOfMemoryError)) throw error
      if (refusals < MOST_REFUSALS) continue
      const why = `the GPU refuses memory that it seemed to have (${error.what}); less gpuMemory or backend wasm helps`
      throw new BackendUnavailableError('webgpu', why, { cause: error })
    }
  }
}

async function openOnce(packed: PackedModel, options: HostedOptions, gpuOptions: WebgpuOptions, refusals: number) {
  const opened = await openDevice(gpuOptions)
  const { device } = opened
  const undo: (() => Promise<void>)[] = []
  // Whatever asks for a buffer and does not look whether it gets one.
  device.pushErrorScope('out-of-memory')
  const opening = openParts(opened, packed, options, gpuOptions, undo, refusals)
  const failure = await opening.then(
    () => null,
    error => error,
  )
  const refused = await device.popErrorScope().catch(() => null)
  if (failure === null && refused === null) return opening
  if (failure === null) await (await opening).close()
  else for (const close of undo) await close()
  opened.close()
  if (refused !== null) throw new OutOfMemoryError('a buffer', 0, refused.message)
  // What is to be mapped at once and cannot be had throws this, says WebGPU.
  if (failure instanceof RangeError) throw new OutOfMemoryError('a buffer', 0, failure.message)
  // Kernels that a driver does not compile are as good as kernels that compute nonsense.
  const isOurs = (failure instanceof MoefluxError && !(failure instanceof KernelError)) || options.signal?.aborted
  if (opened.tensors && !isOurs)
    throw new SelfTestError('tensors', `matrix units are not to be had: ${failure.message}`)
  throw failure
}

/** Guesses pay where nothing is brought from elsewhere for them; who asked for them by number gets them anyway. */
class NoRoomForHead extends Error {}

class SelfTestError extends BackendUnavailableError {
  constructor(
    readonly kernels: KernelKind,
    reason: string,
  ) {
    super('webgpu', reason)
  }
}

function kindOf({ tensors, checks, subgroups, packedDot }: GpuDevice): KernelKind {
  if (tensors) return 'tensors'
  if (!checks) return 'unchecked'
  return subgroups === null && !packedDot ? 'portable' : 'subgroups'
}

/** Tokens of a step of a prompt at most, from what may be too much to what must do. */
function chunkLengths({ chunkTokens }: WebgpuOptions, isSoftware: boolean, hasTensors: boolean): number[] {
  if (chunkTokens !== undefined) return [chunkTokens]
  if (isSoftware) return [SOFTWARE_CHUNK_TOKENS]
  return hasTensors ? [LONG_CHUNK_TOKENS, CHUNK_TOKENS] : [CHUNK_TOKENS]
}

async function openParts(
  opened: GpuDevice,
  packed: PackedModel,
  options: HostedOptions,
  gpuOptions: WebgpuOptions,
  undo: (() => Promise<void>)[], // what is to be done where this fails
  refusals: number, // of memory, when this was tried before
): Promise<WebgpuBackend> {
  const { device, limits, description } = opened
  const { config } = packed
  if (description.software && options.automatic) {
    throw new BackendUnavailableError(
      'webgpu',
      `${description.name} is a software adapter, slower than the CPU itself`,
      { absent: true },
    )
  }
  if (description.software) options.onNotice?.(`webgpu runs on a software adapter (${description.name}), which is slow`)
  const onCompiled = (loaded: number, total: number) => options.onProgress?.({ phase: 'kernels', loaded, total })
  const common = { SUBGROUPS: opened.subgroups !== null, PACKED_DOT: opened.packedDot }
  const kernels = new KernelSet(device, common, onCompiled)
  const tuning = { ...(description.software ? SOFTWARE_TUNING : HARDWARE_TUNING), ...gpuOptions.tuning }
  const { subgroups, tensors } = opened
  const waits = new GentleWait(opened.sleep)
  const gpu: GpuContext = { device, kernels, fast: options.precision === 'fast', subgroups, tensors, waits, tuning }
  const maxBytes = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize)
  const { expertsPerToken, precision } = options
  const usesTensors = gpu.tensors && gpu.fast
  const place = await tierPlace(packed, options)
  const lengths = chunkLengths(gpuOptions, description.software, usesTensors && refusals === 0)
  const { chunkTokens, room, model } = await takeRoomForChunks(device, lengths, chunkTokens => ({
    model: gpuModelOf(packed, {
      ...{ expertsPerToken, precision, planned: options.planned, maxBufferBytes: maxBytes, chunkTokens, tuning },
      tensors: usesTensors,
    }),
    ...{ refusals, gpuMemory: options.gpuMemory, expertMemory: options.expertMemory },
    isShared: gpuOptions.isShared ?? !description.ownMemory,
    reserve: gpuOptions.reserve,
    memory: (place?.host ?? options.wasmHost)?.memory() ?? null,
    host: place && (memory => hostSideOf(packed, options, chunkTokens, memory, place)),
  }))
  const { planned } = model
  const { plan } = room
  const holdsAll = plan.gpuSlots >= allExperts(model)
  if (options.drafts === 'auto' && config.draftHead !== null && !holdsAll) throw new NoRoomForHead()
  if (!holdsAll) options.onNotice?.(plan.line)
  const states = new StatePool(device, config, layersOfKind(config, 'linear_attention'), maxBytes)
  const kv = new KvPool(device, config, kvLayers(config), maxBytes)
  const pages = Math.min(plannedPages(planned), kv.mostPages)
  await states.reserve(plannedStates(planned, config) - 1)
  await kv.reserve(pages, pages)
  const shape = {
    experts: config.numExperts,
    k: expertsPerToken,
    maxTokens: chunkTokens,
    logitsStride: logitsStride(config.numExperts, 0),
    pairTile: tuning.PAIR_TILE,
    isPadded: usesTensors,
  }
  const space = await makeChecked(device, 'workspace', () => createWorkspace(gpu, config, shape))
  const isSoftware = description.software
  const request = { packed, options, model, room, place, chunkTokens, isSoftware, way: gpuOptions.way }
  const sources = config.expertLayers.length === 0 ? null : await openSources(device, request, undo)
  const spare = stagingBytes(model.slotBytes, model.recordBytes)
  const weights = await loadResidentWeights(device, packed, maxBytes, spare, options)
  const experts = sources && (await openSlots(opened, request, sources))
  const slots = experts?.slots ?? new NoExperts(device)
  if (experts !== null) {
    const makeRoom = (bytes: number) => experts.slots.giveRoom(bytes)
    states.makeRoom = makeRoom
    kv.makeRoom = makeRoom
  }
  const tier = sources?.tier ?? null
  const profiler = (options.profile || gpuOptions.timing) && opened.timestamps ? new Profiler(device) : null
  const parts = { gpu, config, space, states, kv, slots, experts, host: tier }
  const readsAhead = options.prefetch !== false && sources?.reader.isLocal === true
  const building = PromptPass.create(parts, weights, profiler, readsAhead)
  building.catch(() => {}) // it may fail before it is waited for
  const head = await Head.create(gpu, config, space, weights)
  const [prompt, decode] = await Promise.all([
    building,
    // Where nothing is left on disk, guesses are of no use.
    DecodePass.create(parts, weights, head, profiler, readsAhead && tier?.holdsRest !== true),
  ])
  const info = new StepInfo(device, config, space, kv)
  const drafts = weights.draftHead && {
    resident: await DraftChain.create(decode.layerParts, decode.layerOptions, weights, info, head, profiler),
    streaming: await DraftByPrompt.create(parts, weights, prompt, info, head),
  }
  const kind = kindOf(opened)
  const wrong = gpuOptions.isNull ? null : await selfTest(parts, weights, packed, gpuOptions.selfTestError?.(kind))
  if (wrong !== null) throw new SelfTestError(kind, `${description.name} computes wrong numbers: ${wrong}`)
  // Whoever has room for every expert wants them there, before they are asked for one by one.
  const fills: Promise<void>[] = []
  if (slots.holdsAll && readsAhead) fills.push(slots.fill())
  if (tier?.holdsRest && readsAhead) fills.push(tier.fill())
  if (experts !== null && tier !== null && readsAhead) fills.push(experts.slots.fillEmpty(tier))
  // Who cannot be read now is read, or found unreadable, when it is wanted.
  const filling = Promise.allSettled(fills).then(() => tier?.settled())
  const pace = new ChunkPace(lengths[lengths.length - 1], chunkTokens)
  const made = { plan, states, kv, space, slots, tier, prompt, decode, head, drafts, profiler, pace, filling, waits }
  return new WebgpuBackend(opened, packed, options, made)
}
