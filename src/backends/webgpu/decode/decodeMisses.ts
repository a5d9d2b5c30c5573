// What a decode step does about experts that are in no slot: it waits until they are read, or the
// CPU computes them where their bytes are (cpuExperts.ts) while the GPU computes the others.
// Meanwhile predicted experts of the next layers are read. How many layers go into one submission
// follows the measured distance between misses: all of them when nothing misses, one when every
// layer does. decodePass.ts records, submits and reads back. Layers are counted among those with
// experts.
import { ReadAhead } from '../../../experts/prefetch.js'
import { PrefetchGovernor } from '../../../experts/prefetchGovernor.js'
import type { StepSize } from '../../../gpu/device/op.js'
import { type Profiler, Recorder } from '../../../gpu/device/recorder.js'
import { NOT_LEFT } from '../../../ops/router/router.gpu.js'
import type { HostExperts, HostPair } from '../experts/cpuExperts.js'
import type { StepSlots } from '../experts/residency.js'
import { MAX_DECODE_BATCH } from '../memory/workspace.js'
import type { LayerParts } from '../prefill/prefillLayer.js'
import type { DecodeLayer } from './decodeLayer.js'

const NO_MISS = new Uint32Array(4)
const NEARER = 0.7 // of the expected distance to the next miss: commands after a miss are for nothing

/** What commands have left behind that end at a layer's choice, or with the last layer. */
export interface Seen {
  readonly missed: number // layer; -1: none
  /**
   * [layers with experts, MAX_DECODE_BATCH, K], then rows of predictions, then what is left to the
   * CPU.
   */
  readonly routing: Uint32Array
  readonly weights: Float32Array // [tokens, ranks, 2]: slot, weight of the layer that missed; empty where no CPU computes
  readonly hidden: Float32Array // [tokens, hidden] there
}

/**
 * How commands begin at a layer whose choice is known: by its experts, after choosing once more
 * since it may have missed; by adding the CPU's rows, its other experts being computed; or after
 * it, nothing having been left to the CPU.
 */
export type Begin = 'choose' | 'add' | 'after'

/**
 * Layers of one submission: from the experts of `from`, -1: from the embedding, to the choice of
 * `to`.
 */
interface SubmittedLayers {
  readonly from: number
  readonly to: number
  readonly leavesOut: boolean // experts of `to` are computed as well, but for those in no slot
}

export class DecodeMisses {
  private readonly parts: LayerParts
  private readonly slots: StepSlots
  private readonly host: HostExperts | null
  private readonly nearest: HostExperts | StepSlots // to the disk: what is predicted is read into that memory
  private readonly readAhead: ReadAhead | null
  private readonly governor: PrefetchGovernor
  private readonly layerCount: number // with experts, a head's aside
  private readonly ms = { wait: 0, begin: 0, compute: 0 }
  private missRate = 1 // per layer, fading
  // Of the step that runs:
  private predictions: ReadAhead | null = null
  private holding: Promise<void> | null = null
  private helping: Promise<Float32Array> | null = null

  /**
   * `hostRows`: [MAX_DECODE_BATCH, hidden], for the CPU's rows. `sources`: layers whose choice is
   * predicted at once.
   */
  constructor(
    parts: LayerParts,
    private readonly layers: readonly DecodeLayer[],
    private readonly hostRows: GPUBuffer,
    sources: number,
    private readonly profiler: Profiler | null,
  ) {
    const { config, space, slots, host, gpu } = parts
    this.parts = parts
    this.slots = slots
    this.host = host
    this.nearest = host ?? slots
    this.layerCount = config.moeLayers.length
    const sizes = { layers: this.layerCount, experts: config.numExperts, k: space.shape.k }
    const rule = { sources, least: gpu.tuning.TRUST, leastSpare: gpu.tuning.TRUST_SPARE }
    this.readAhead = sources > 0 ? new ReadAhead(this.nearest, { ...sizes, ...rule }) : null
    this.nearest.onRead = () => this.readAhead?.readSpare()
    this.governor = new PrefetchGovernor(this.readAhead !== null)
  }

  /** Seconds of layers that the CPU has helped with. */
  get helpSeconds(): Readonly<Record<string, number>> {
    const { wait, begin, compute } = this.ms
    return {
      'helped layers: GPU': wait / 1000,
      'helped layers: begin': begin / 1000,
      'helped layers: processors': compute / 1000,
    }
  }

  /** Experts that were to be read, wanted or ahead. */
  get readsAsked(): number {
    return this.nearest.readsAsked
  }

  /** A step took this long, with so many reads. */
  stepDone(seconds: number, reads: number): void {
    this.governor.stepDone(seconds, reads)
  }

  /**
   * How far commands go that begin at a layer's experts: most of the way to the next miss, as
   * misses went of late.
   */
  reach(from: number): number {
    if (this.missRate * this.layerCount < 0.5 || this.slots.isAllResident) return this.layerCount
    return Math.min(this.layerCount, from + Math.max(1, Math.round(NEARER / this.missRate)))
  }

  /** Whether the experts of the last layer are computed at once, but for those of the CPU. */
  leavesOut(to: number): boolean {
    return this.host !== null && this.profiler === null && to < this.layerCount
  }

  /** Only the last layer may leave experts out: nothing computes those missing before it. */
  allowLeavingOut(to: number): void {
    this.writeStatus(new Uint32Array([0, to + 1, 0, 0]))
  }

  /** How the commands after these will begin, most likely. */
  expectedBegin(leavesOut: boolean): Begin {
    if (this.host !== null && this.missRate > 0.5) return 'add'
    return leavesOut ? 'after' : 'choose'
  }

  /**
   * A step begins, and `end` ends it. Whether its commands shall predict what the next layers
   * choose.
   */
  begin(): boolean {
    this.predictions = this.slots.isAllResident || !this.governor.on ? null : this.readAhead
    return this.predictions !== null
  }

  /**
   * Begins what the layer needs that was reached: the CPU's part, or reads of what is missing; then
   * reads of predicted experts. Returns that layer, and how commands begin there after `settle`.
   */
  answer(
    seen: Seen,
    submitted: SubmittedLayers,
    size: StepSize,
    signal?: AbortSignal,
  ): { layer: number; begin: Begin } {
    const { from, to, leavesOut } = submitted
    const { tokens } = size
    const isMiss = seen.missed >= 0
    const reached = isMiss ? seen.missed : to
    const hits = Math.min(isMiss ? reached : reached + 1, this.layerCount)
    // The CPU's threads begin before anything else.
    const left = leavesOut && !isMiss ? this.leftPairs(seen, to, tokens) : []
    if (isMiss && this.host !== null) this.helping = this.help(this.host, reached, seen, size, signal)
    else if (left.length > 0) this.helping = (this.host as HostExperts).compute(to, seen.hidden, left, signal)
    this.helping?.catch(() => {}) // awaited in `settle` or `end`
    for (let layer = from + 1; layer < hits; layer++) {
      const chosen = this.chosen(seen.routing, layer, tokens)
      this.predictions?.judge(layer, chosen)
      if (layer === to) for (const { expert } of left) chosen.delete(expert)
      for (const expert of chosen) this.slots.touch(layer, expert)
    }
    // What is wanted now is asked for first, then what may be wanted soon; both are read at once.
    if (isMiss) {
      const chosen = this.chosen(seen.routing, reached, tokens)
      this.predictions?.judge(reached, chosen)
      if (this.host === null) this.holding = this.slots.hold(reached, chosen, signal)
      this.holding?.catch(() => {}) // awaited in `settle`
    }
    const hasLeft = left.length > 0
    this.observe(Math.max(0, hits - from - (hasLeft ? 2 : 1)), isMiss || hasLeft)
    if (reached < this.layerCount) this.predictAfter(reached, seen, tokens)
    return { layer: reached, begin: this.helping !== null ? 'add' : leavesOut && !isMiss ? 'after' : 'choose' }
  }

  /**
   * Ends when what `answer` has begun is where the next commands find it. `wait`: ms from the
   * submission until its choice was read back, at `readAt`.
   */
  async settle(wait: number, readAt: number, signal?: AbortSignal): Promise<void> {
    if (this.helping !== null) {
      const recorded = performance.now()
      this.host?.spin()
      const rows = await this.helping
      this.helping = null
      signal?.throwIfAborted()
      const computed = performance.now()
      this.parts.gpu.device.queue.writeBuffer(this.hostRows, 0, rows)
      this.ms.wait += wait
      this.ms.begin += recorded - readAt // both sides have their work, the next commands are recorded
      this.ms.compute += computed - recorded
    }
    if (this.holding !== null) {
      await this.holding
      this.holding = null
      this.writeStatus(NO_MISS)
    }
  }

  /** The step has ended, well or not. */
  async end(): Promise<void> {
    this.holding = null
    await this.helping?.catch(() => {}) // its memory is used again
    this.helping = null
    this.predictions?.forget()
    this.predictions = null
  }

  /** Commands have used the experts of all layers, which were in slots. */
  touchAll(routing: Uint32Array, tokens: number): void {
    for (let layer = 0; layer < this.layerCount; layer++) this.touchChosen(routing, layer, tokens)
  }

  /**
   * Has the CPU compute a layer's missing experts and the GPU the others. Null where nothing is
   * missing any more. Both begin here, in one go: what the commands find in slots and what the CPU
   * takes are two halves of one choice.
   */
  private help(
    host: HostExperts,
    layer: number,
    seen: Seen,
    size: StepSize,
    signal: AbortSignal | undefined,
  ): Promise<Float32Array> | null {
    const { tokens } = size
    const { k } = this.parts.space.shape
    const ranks = seen.weights.length / (2 * tokens)
    const pairs: HostPair[] = []
    for (let token = 0; token < tokens; token++) {
      for (let rank = 0; rank < k; rank++) {
        const expert = seen.routing[(layer * MAX_DECODE_BATCH + token) * k + rank]
        if (this.slots.isShown(layer, expert)) continue
        pairs.push({ token, expert, weight: seen.weights[(token * ranks + rank) * 2 + 1] })
      }
    }
    const computing = pairs.length > 0 ? host.compute(layer, seen.hidden, pairs, signal) : null
    // Only the commands below may leave experts out: nothing computes those that are missing later.
    const helped = pairs.length > 0 ? layer + 1 : 0
    this.writeStatus(new Uint32Array([0, helped, 0, 0]))
    const onGpu = [...this.chosen(seen.routing, layer, tokens)].filter(expert => this.slots.isShown(layer, expert))
    if (computing !== null) {
      const recorder = new Recorder(this.parts.gpu.device, this.profiler)
      this.layers[layer].routing.choose(recorder, size)
      this.layers[layer].experts(recorder, size)
      this.slots.submit([recorder.finish() as GPUCommandBuffer], layer + 1)
    }
    for (const expert of onGpu) this.slots.touch(layer, expert)
    return computing
  }

  /** What a layer's choice has left to the CPU. */
  private leftPairs(seen: Seen, layer: number, tokens: number): HostPair[] {
    const { k } = this.parts.space.shape
    const { routing } = seen
    const row = routing.length - MAX_DECODE_BATCH * k
    const weights = new Float32Array(routing.buffer, routing.byteOffset + row * 4, tokens * k)
    const pairs: HostPair[] = []
    for (let token = 0; token < tokens; token++) {
      for (let rank = 0; rank < k; rank++) {
        const at = token * k + rank
        if (routing[row + at] === NOT_LEFT) continue
        pairs.push({ token, expert: routing[layer * MAX_DECODE_BATCH * k + at], weight: weights[at] })
      }
    }
    return pairs
  }

  /** Reads experts that the layer's commands have predicted for the layers after it. */
  private predictAfter(layer: number, { routing }: Seen, tokens: number): void {
    if (this.predictions === null) return
    const { config, space } = this.parts
    const { k } = space.shape
    for (let source = 0; source < this.layers[layer].routingAhead.ahead; source++) {
      const at = (config.expertLayers.length + source) * MAX_DECODE_BATCH * k
      this.predictions.guess(layer + 1 + source, source, routing.subarray(at, at + tokens * k))
    }
    this.predictions.readSpare()
  }

  /** Each expert once. Without a set: one for each layer of each token is half of all garbage. */
  private touchChosen(routing: Uint32Array, layer: number, tokens: number): void {
    const { k } = this.parts.space.shape
    const first = layer * MAX_DECODE_BATCH * k
    for (let i = first; i < first + tokens * k; i++) {
      if (routing.indexOf(routing[i], first) === i) this.slots.touch(layer, routing[i])
    }
  }

  private chosen(routing: Uint32Array, layer: number, tokens: number): Set<number> {
    const { k } = this.parts.space.shape
    const at = layer * MAX_DECODE_BATCH * k
    return new Set(routing.subarray(at, at + tokens * k))
  }

  private observe(layers: number, missed: boolean): void {
    const fade = 0.98 ** (layers + (missed ? 1 : 0))
    this.missRate = this.missRate * fade + (missed ? 1 - fade ** (1 / (layers + 1)) : 0)
  }

  private writeStatus(words: Uint32Array<ArrayBuffer>): void {
    this.parts.gpu.device.queue.writeBuffer(this.parts.space.status, 0, words)
  }
}
