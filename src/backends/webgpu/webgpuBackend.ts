// The webgpu backend: the same code in Node (Dawn) and in browsers. Owns the device and what was
// opened on it, takes one step, probe or draft at a time, and tells what was counted and measured.
// How runs become passes is in runSteps.ts; opening is in open/openWebgpuBackend.ts.
import { ClosedError, type DeviceLostError, MoefluxError } from '../../base/errors.js'
import { yieldToEventLoop } from '../../base/yieldToEventLoop.js'
import { addReads } from '../../experts/readers/readCounters.js'
import type { StreamerStats } from '../../experts/streamerCore.js'
import type { PackedModel } from '../../files/packed/packedModel.js'
import type { GpuDevice } from '../../gpu/device/gpuDevice.js'
import type { GentleWait } from '../../gpu/device/readbackTimer.js'
import type { KernelTime, Profiler } from '../../gpu/device/recorder.js'
import type { KvPool } from '../../gpu/memory/kvPool.js'
import type { StatePool } from '../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../model/config.js'
import type {
  Backend,
  BackendOptions,
  ProbeRequest,
  ProbeResult,
  SequenceState,
  StepOptions,
  StepOutput,
  StepRun,
} from '../backend.js'
import { Turns } from '../serialQueue.js'
import type { ModelStats, TierStats } from '../stats.js'
import type { ChunkPace } from './chunkSizer.js'
import type { DecodePass } from './decode/decodePass.js'
import type { HostTier } from './experts/cpuTier.js'
import type { StepSlots } from './experts/residency.js'
import { GpuSequence, type SequenceHome } from './memory/gpuSequence.js'
import type { GpuPlan } from './open/gpuPlan.js'
import { RunSteps, type StepParts } from './runSteps.js'

/** What a backend is made of; see openWebgpuBackend.ts. */
interface BackendParts extends StepParts {
  readonly plan: GpuPlan
  readonly tier: HostTier | null // the experts that the GPU has no room for
  readonly profiler: Profiler | null
  readonly filling: Promise<void> // of empty slots, behind everything else
  readonly waits: GentleWait
}

export class WebgpuBackend implements Backend, SequenceHome {
  readonly name = 'webgpu'
  readonly device: GPUDevice
  readonly config: ModelConfig
  readonly description: string
  readonly plan: GpuPlan
  readonly states: StatePool
  readonly kv: KvPool
  private readonly opened: GpuDevice
  private readonly packed: PackedModel
  private readonly slots: StepSlots
  private readonly tier: HostTier | null
  private readonly decode: DecodePass
  readonly draft?: Backend['draft']
  private readonly profiler: Profiler | null
  private readonly pace: ChunkPace
  private readonly steps: RunSteps
  private readonly turns = new Turns()
  private readonly filling: Promise<void>
  private readonly waits: GentleWait
  private closed = false

  constructor(opened: GpuDevice, packed: PackedModel, options: BackendOptions, parts: BackendParts) {
    this.opened = opened
    this.packed = packed
    this.device = opened.device
    this.config = packed.config
    this.pace = parts.pace
    this.plan = parts.plan
    this.states = parts.states
    this.kv = parts.kv
    this.slots = parts.slots
    this.tier = parts.tier
    this.decode = parts.decode
    this.steps = new RunSteps(opened, packed.config, parts)
    const { drafts } = parts
    if (drafts) this.draft = (requests, options = {}) => this.inTurn(() => this.steps.guess(drafts, requests, options))
    this.profiler = parts.profiler
    this.filling = parts.filling
    this.waits = parts.waits
    const { description } = opened
    const paths = [opened.subgroups ? 'subgroups' : 'portable', opened.packedDot ? 'packed dot' : 'unpacked']
    if (opened.tensors) paths.push('matrix units')
    if (opened.checks) paths.push('checked')
    this.description = `webgpu on ${description.name}, ${paths.join(', ')}, ${options.precision}`
  }

  get chunkTokens(): number {
    return this.pace.tokens
  }

  get shortChunkTokens(): number {
    return this.pace.least
  }

  createSequence(): SequenceState {
    return new GpuSequence(this)
  }

  /** What was submitted before it was asked for is not wanted. */
  dropAhead(sequence?: GpuSequence): void {
    this.steps.drop(sequence)
  }

  step(runs: readonly StepRun[], options: StepOptions = {}): Promise<StepOutput[]> {
    return this.takeTurn(() => this.steps.run(runs, options))
  }

  probe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult> {
    return this.inTurn(() => this.steps.probe(sequence, request))
  }

  inTurn<T>(work: () => Promise<T>): Promise<T> {
    return this.takeTurn(() => {
      this.dropAhead() // whoever comes may write where that has written
      return work()
    })
  }

  /**
   * One at a time: workspace, page table and slots are one. What goes wrong because the device is
   * gone is told as that.
   */
  private takeTurn<T>(work: () => Promise<T>): Promise<T> {
    return this.turns.take(async () => {
      this.check()
      try {
        return await work()
      } catch (error) {
        throw await this.explain(error)
      }
    })
  }

  private async explain(error: unknown): Promise<unknown> {
    if (this.closed) return new ClosedError('model')
    // A command that failed with the device may be heard of before the device's end is.
    if (!(error instanceof MoefluxError)) await yieldToEventLoop()
    try {
      this.opened.check()
    } catch (lost) {
      return lost
    }
    return error
  }

  stats(): ModelStats {
    const { promptTokens, decodeTokens, steps, seconds } = this.steps.counts
    const tiers = this.tier && tierStats(this.tier, this.slots.bytes)
    const reads = this.tier === null ? this.slots.reads : addReads(this.slots.reads, this.tier.reads)
    const stats = tiers === null || this.tier === null ? this.slots.stats : streamerStats(this.slots.stats, this.tier)
    const { stallSeconds } = stats
    return {
      tokens: promptTokens + decodeTokens,
      promptTokens,
      decodeTokens,
      steps,
      ...stats,
      bytesRead: reads.bytes,
      readSeconds: reads.seconds,
      readBusySeconds: reads.busySeconds,
      readLatencyMs: [...reads.latency],
      computeSeconds: Math.max(0, seconds - stallSeconds),
      phaseSeconds: this.phaseSeconds(Math.max(0, seconds - stallSeconds)),
      residentBytes: this.packed.weights.size,
      expertMemory: this.slots.bytes + (this.tier?.bytes ?? 0),
      tiers,
    }
  }

  loaded(): Promise<void> {
    return this.filling
  }

  forgetExperts(): void {
    this.dropAhead()
    this.slots.forget()
  }

  residency(): Uint8Array {
    const { moeLayers, numExperts } = this.config
    const onGpu = this.slots.residency().slice(0, moeLayers.length * numExperts)
    const below = this.tier?.tiers.memory.resident
    return below === undefined ? onGpu : onGpu.map((isThere, i) => isThere | below[i])
  }

  /** By kernel where they are measured, else all in one. */
  private phaseSeconds(total: number): Record<string, number> {
    const times = this.profile()
    const helped = this.tier === null ? {} : this.decode.helpSeconds
    const besides = Object.values(helped).reduce((sum, seconds) => sum + seconds, 0)
    if (times.length === 0) return { gpu: Math.max(0, total - besides), ...helped }
    return { ...Object.fromEntries(times.map(({ label, ms }) => [label, ms / 1000])), ...helped }
  }

  /** Brings every expert into GPU memory, where the budget holds them all. */
  async loadAllExperts(onProgress?: (loaded: number, total: number) => void): Promise<void> {
    const { expertLayers, numExperts } = this.config
    const total = expertLayers.length * numExperts
    if (this.slots.holdsAll) await this.slots.fill(loaded => onProgress?.(loaded, total))
  }

  get failure(): DeviceLostError | null {
    return this.opened.failure ?? this.tier?.failure ?? null
  }

  resetProfile(): void {
    this.profiler?.reset()
  }

  /** GPU time by kernel since the backend was opened with `timing`, longest first. */
  profile(): KernelTime[] {
    return this.profiler?.times() ?? []
  }

  async close(): Promise<void> {
    this.closed = true
    await this.slots.close()
    await this.turns.ended()
    await this.waits.ended() // for what nobody asks for any more
    this.opened.close()
  }

  private check(): void {
    if (this.closed) throw new ClosedError('model')
    this.opened.check()
    if (this.tier?.failure) throw this.tier.failure
  }
}

/** What is told of experts on a GPU and in memory beside it. */
function tierStats({ tiers, bytes }: Pick<HostTier, 'tiers' | 'bytes'>, gpuBytes: number): TierStats {
  const { gpu, memory, counters } = tiers
  const { promotions, uploads, refills } = counters
  const wanted = counters.gpu + counters.memory + counters.disk
  const computedOnGpu = Math.min(wanted, counters.gpu + uploads)
  return {
    gpu: { slots: gpu.slotsLeft, used: gpu.slotsUsed, bytes: gpuBytes, hits: counters.gpu },
    memory: { slots: memory.slots, used: memory.slotsUsed, bytes, hits: counters.memory },
    disk: { hits: counters.disk },
    computedOnGpu,
    computedOnCpu: wanted - computedOnGpu,
    promotions,
    uploads,
    refills,
  }
}

/** The streamers of both as if they were one: what was found on the GPU or in memory was no miss. */
function streamerStats(onGpu: StreamerStats, { tiers, stats }: Pick<HostTier, 'tiers' | 'stats'>): StreamerStats {
  const { gpu, memory, counters } = tiers
  return {
    ...stats, // what is read ahead is read into memory
    expertHits: counters.gpu + counters.memory,
    expertMisses: counters.disk,
    stallSeconds: onGpu.stallSeconds + stats.stallSeconds,
    expertSlots: gpu.slotsLeft + memory.slots,
    expertSlotsUsed: gpu.slotsUsed + memory.slotsUsed,
  }
}
