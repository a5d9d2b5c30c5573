// How a request for experts in memory finds its slots where ExpertTiers decides: each expert is told to it once, however often
// the request has to ask again. Pure.
import type { ExpertTiers } from './expertTiers.js'
import type { SlotClaims } from './streamerCore.js'

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
