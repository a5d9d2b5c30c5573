// Whether a disk keeps up with prompts by itself, so that reading ahead would be work for nothing. For the first layer of a
// chunk nobody reads ahead: what it waits for its experts tells, for the layers after it and for the next chunk. Pure.

const LEAST_STALL = 0.002 // seconds of a layer

interface Counts {
  readonly stallSeconds: number
  readonly expertMisses: number
}

export class PromptStalls {
  private isSlow = true // until more is known
  private before: Counts | null = null // the first layer's experts were asked for

  /** Whether to read ahead for the layer after this one. `counts`: before this layer asks for its experts. */
  wantsHelp(layer: number, counts: Counts): boolean {
    if (layer === 0) this.before = counts
    else if (layer === 1 && this.before !== null && counts.expertMisses > this.before.expertMisses) {
      this.isSlow = counts.stallSeconds - this.before.stallSeconds >= LEAST_STALL
    }
    return this.isSlow
  }
}
