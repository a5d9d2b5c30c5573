// What each sequence's last token chose, layer by layer: a guess of what the next one will, since neighbours are alike.

export class PreviousExperts {
  private readonly sets = new Map<number, (readonly number[])[]>() // sequence → [layers]

  /** The routed experts of a sequence's last token in this step. */
  observe(sequence: number, layer: number, experts: ArrayLike<number>): void {
    let layers = this.sets.get(sequence)
    if (!layers) {
      layers = []
      this.sets.set(sequence, layers)
    }
    layers[layer] = Array.from(experts)
  }

  of(sequence: number, layer: number): readonly number[] {
    return this.sets.get(sequence)?.[layer] ?? []
  }

  forget(sequence: number): void {
    this.sets.delete(sequence)
  }
}
