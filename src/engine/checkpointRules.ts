// Which positions of a sequence have a checkpoint. Pure: positions and the order of their use, no states. At most `max`;
// storing over a position refreshes it; when there are too many, the least recently used goes (storing and restoring are
// use), never the one just stored, and position 0 (the empty sequence, or a shared start) only when nothing else is left.

export class CheckpointRules {
  private readonly used: number[] = [] // positions, least recently used first

  constructor(public max: number) {}

  /** Ascending. */
  get positions(): number[] {
    return this.used.toSorted((a, b) => a - b)
  }

  has(position: number): boolean {
    return this.used.includes(position)
  }

  /** The greatest position that is not past `position`, or null. */
  nearest(position: number): number | null {
    return this.positions.findLast(p => p <= position) ?? null
  }

  /** Returns what has to go; `position` itself where checkpoints are off. */
  store(position: number): number[] {
    this.remove(position)
    this.used.push(position)
    const evicted: number[] = []
    while (this.used.length > Math.max(this.max, 1)) {
      const candidates = this.used.slice(0, -1)
      const victim = candidates.find(p => p !== 0) ?? candidates[0]
      this.remove(victim)
      evicted.push(victim)
    }
    if (this.max === 0) {
      this.remove(position)
      evicted.push(position)
    }
    return evicted
  }

  /** Counts as use of `position`; returns the ones after it, which have to go. */
  restore(position: number): number[] {
    this.remove(position)
    this.used.push(position)
    return this.dropAfter(position)
  }

  dropAfter(position: number): number[] {
    const dropped = this.used.filter(p => p > position)
    for (const p of dropped) this.remove(p)
    return dropped
  }

  private remove(position: number) {
    const index = this.used.indexOf(position)
    if (index >= 0) this.used.splice(index, 1)
  }
}
