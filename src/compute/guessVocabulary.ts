// Tokens that a head for drafts may guess. Logits of a whole vocabulary of 250,000 are most of what a guess costs a processor, and few
// of them ever win: vocabularies are made by joining the most frequent pieces first, so that low ids are frequent tokens, and of the
// others a text mostly repeats those that it has had already. A token that is left out is not guessed; texts stay the same. How much of
// texts that covers: docs/performance-log.md. Pure.

/** The first so many tokens of a vocabulary that is half as large again, at least. */
const COMMON_TOKENS = 65_536
const MUCH_LARGER = 1.5

/** Rare tokens that were seen last: those of some ten thousand tokens of text. */
export const MOST_RARE_TOKENS = 2048

export class GuessVocabulary {
  /** Ids below it are all guessed. */
  readonly common: number
  private readonly seen = new Set<number>() // rare ones, the one seen last at the end
  private ascending: readonly number[] | null = []

  constructor(
    readonly size: number,
    common = size >= MUCH_LARGER * COMMON_TOKENS ? COMMON_TOKENS : size,
  ) {
    this.common = Math.min(common, size)
  }

  /** Tokens that have become part of a text. */
  see(tokens: readonly number[]): void {
    for (const token of tokens) {
      if (token < this.common) continue
      if (!this.seen.delete(token)) {
        this.ascending = null
        if (this.seen.size === MOST_RARE_TOKENS) this.seen.delete(this.seen.values().next().value as number)
      }
      this.seen.add(token)
    }
  }

  /** Those beside the common ones, ascending. */
  get rare(): readonly number[] {
    this.ascending ??= [...this.seen].sort((a, b) => a - b)
    return this.ascending
  }

  /** Takes from the logits of all tokens what stands where none was computed. */
  leaveOut(logits: Float32Array): void {
    if (this.common === this.size) return
    const { rare } = this
    const known = rare.map(token => logits[token])
    logits.fill(-Infinity, this.common)
    for (const [i, token] of rare.entries()) logits[token] = known[i]
  }
}
