// How requests for experts find their slots if ExpertTiers decides: on the GPU, or in memory. Pure.
import type { ExpertTiers } from './expertTiers.js'
import type { SlotClaims } from './streamerCore.js'

/**
 * On the GPU: a missing expert is counted where it was found, pinned in memory until it is
 * uploaded, and gets the slot that the tiers choose.
 */
export class TierClaims implements SlotClaims {
  private readonly below = new Map<number, number>() // of the present request: key → slot in memory, pinned; -1: none

  constructor(private readonly tiers: ExpertTiers) {}

  want(layer: number, expert: number): number {
    const slot = this.tiers.wantOnGpu(layer, expert)
    if (slot >= 0 && !this.below.has(this.keyOf(layer, expert))) this.tiers.counters.gpu++
    return slot
  }

  claim(layer: number, expert: number): number {
    const key = this.keyOf(layer, expert)
    // Asked for again while no slot may be emptied; it is wanted once.
    if (!this.below.has(key)) this.below.set(key, this.tiers.wantBelow(layer, expert))
    return this.tiers.bring(layer, expert)
  }

  get holdsMemory(): boolean {
    for (const slot of this.below.values()) if (slot >= 0) return true
    return false
  }

  /** The read into the GPU's slot of this expert is over: its place in memory may go. */
  ended(layer: number, expert: number): void {
    const key = this.keyOf(layer, expert)
    const slot = this.below.get(key) ?? -1
    if (slot < 0) return
    this.tiers.memory.unpin(slot)
    this.below.set(key, -1)
  }

  release(): void {
    for (const slot of this.below.values()) if (slot >= 0) this.tiers.memory.unpin(slot)
    this.below.clear()
  }

  private keyOf(layer: number, expert: number): number {
    return layer * this.tiers.shape.experts + expert
  }
}

/** In memory: each expert is reported to the tiers once, however often the request asks again. */
export class MemoryClaims implements SlotClaims {
  private readonly told = new Set<number>() // keys, of the present request

  constructor(
    private readonly tiers: ExpertTiers,
    private readonly makeRoom: () => boolean, // where no slot may be emptied; whether that has changed
  ) {}

  want(layer: number, expert: number): number {
    const key = layer * this.tiers.shape.experts + expert
    if (this.told.has(key)) return this.tiers.memory.want(layer, expert)
    this.told.add(key)
    return this.tiers.wantBelow(layer, expert)
  }

  claim(layer: number, expert: number): number {
    const slot = this.tiers.claim(layer, expert)
    return slot < 0 && this.makeRoom() ? this.tiers.claim(layer, expert) : slot
  }

  release(): void {
    this.told.clear()
  }
}
