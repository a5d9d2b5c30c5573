/** The logits at the current position, where known, in memory that is used again for every token. */
export class LastLogits {
  private values: Float32Array | null = null // [vocab]
  private known = false

  constructor(private readonly vocabSize: number) {}

  /** `logits`: of one token or more, of which the last counts. */
  set(logits: Float32Array | null) {
    this.known = logits !== null
    if (!logits) return
    this.values ??= new Float32Array(this.vocabSize)
    this.values.set(logits.subarray(logits.length - this.vocabSize))
  }

  copy(): Float32Array | null {
    return this.known && this.values ? this.values.slice() : null
  }
}
