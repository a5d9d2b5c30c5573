// Reads a prompt's experts from disk into memory while the layer before computes, where some experts are on a GPU, some in
// memory and the others on disk. Which of the next layer, and when, is decided by `LayerAhead` as everywhere, and whether at
// all by what the first layer of a chunk had to wait (`PromptStalls`; both in prefetch.ts). Takes nothing that the present layer wants, and
// leaves the disk to those who wait for it. Moves no bytes itself.
import type { ExpertTiers } from './expertTiers.js'
import { LayerAhead, type LayerSlots, PromptStalls } from './prefetch.js'
import type { StreamerCore } from './streamerCore.js'

/** What becomes of experts on their way to the GPU. */
export interface GpuSide {
  /** All experts that the present layer wants there have slots: their places in memory are pinned until they are there. */
  isServed(): boolean
  /** Somebody waits for experts that go from disk to the GPU past memory. */
  isReading(): boolean
  stallSeconds(): number
}

export class PromptAhead implements LayerSlots {
  private readonly layerAhead: LayerAhead
  private readonly stalls = new PromptStalls()
  private readonly asked = new Set<number>() // slots

  constructor(
    private readonly tiers: ExpertTiers,
    private readonly core: StreamerCore, // of memory
    private readonly gpu: GpuSide,
    most: number, // experts under way at once
  ) {
    const { layers, experts } = tiers.shape
    this.layerAhead = new LayerAhead(this, { layers, experts, most })
  }

  /** Whether to read ahead for the layer after this one; to be asked before this one asks for its experts. */
  wantsHelp(layer: number): boolean {
    const { core, gpu, tiers } = this
    const stallSeconds = core.stallSeconds + gpu.stallSeconds()
    return this.stalls.wantsHelp(layer, { stallSeconds, expertMisses: tiers.counters.disk })
  }

  /** The layer before has asked for so many experts, on both sides. `guess`: of this one, the surest first. */
  begin(layer: number, wanted: number, guess: readonly number[]): void {
    this.core.callOffLayer(layer - 1) // nobody has asked for those
    this.layerAhead.begin(layer, this.layerAhead.wantsMost(wanted) ? undefined : guess)
    this.layerAhead.goOn()
  }

  /** To be called whenever a read has ended or slots have become free. */
  goOn(): void {
    this.layerAhead.goOn()
  }

  /** The prompt has ended, or is given up. */
  end(): void {
    this.layerAhead.giveUp()
  }

  /** Whether the read into this slot was asked for here. */
  isOwn(slot: number): boolean {
    return this.asked.has(slot)
  }

  /** The read into this slot is over. */
  ended(slot: number): void {
    this.asked.delete(slot)
  }

  // --- slots -------------------------------------------------------------------------------------------------------

  get isServed(): boolean {
    return this.core.isServed && !this.gpu.isReading()
  }

  get readingAhead(): number {
    return this.core.readingAhead
  }

  has(layer: number, expert: number): boolean {
    return this.tiers.isHeld(layer, expert)
  }

  readNext(layer: number, expert: number): boolean {
    const slot = this.tiers.readNext(layer, expert, this.gpu.isServed())
    if (slot < 0) return false
    this.asked.add(slot)
    this.core.move(slot)
    return true
  }

  callOffLayer(layer: number): void {
    this.core.callOffLayer(layer)
  }
}
