// Guesses which experts a layer will want before its router has run. Two sources: the set that the sequence's previous
// token used in the same layer (kept here), and the layer's router run early on the hidden state of the layer before
// (computed by the backend, which has the weights). `predictExperts` joins them. Guesses cost a read when wrong, nothing else.

/** The experts that each sequence's last token used, layer by layer. */
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

  /** After clear, rewind, restore and loadState the last token is another one. */
  forget(sequence: number): void {
    this.sets.delete(sequence)
  }
}

/** Most likely first, each once, at most `limit`: an early router's picks, then the previous token's. */
export function predictExperts(early: ArrayLike<number>, previous: readonly number[], limit: number): number[] {
  const seen = new Set<number>()
  for (let i = 0; i < early.length && seen.size < limit; i++) seen.add(early[i])
  for (let i = 0; i < previous.length && seen.size < limit; i++) seen.add(previous[i])
  return [...seen]
}
