// Tokens that a head for drafts may guess. Logits of a whole vocabulary of 250,000 are most of what a guess costs a processor, and few
// of them ever win: vocabularies are made by joining the most frequent pieces first, so that low ids are frequent tokens, and of the
// others a text mostly repeats those that it has had already. A token that is left out is not guessed; texts stay the same. How much of
// texts that covers: docs/performance-log.md. Pure.

/** The first so many tokens of a vocabulary that is half as large again, at least. */
const COMMON_TOKENS = 65_536
const MUCH_LARGER = 1.5

/** How far back a text is looked at. */
const LOOK_BACK = 8192

/** Rare tokens of all texts that guesses are made for at once. */
export const MOST_RARE_TOKENS = 2048

export class GuessVocabulary {
  /** Ids below it are all guessed. */
  readonly common: number

  constructor(
    private readonly size: number,
    common = size >= MUCH_LARGER * COMMON_TOKENS ? COMMON_TOKENS : size,
  ) {
    this.common = Math.min(common, size)
  }

  /** Those of texts beside the common ones, ascending: what came last, if there are too many. */
  rareOf(texts: readonly (readonly number[])[]): number[] {
    const rare = new Set<number>()
    const most = Math.floor(MOST_RARE_TOKENS / texts.length)
    for (const text of this.common === this.size ? [] : texts) {
      const own = new Set<number>()
      const from = Math.max(0, text.length - LOOK_BACK)
      for (let i = text.length - 1; i >= from && own.size < most; i--) if (text[i] >= this.common) own.add(text[i])
      for (const token of own) rare.add(token)
    }
    return [...rare].sort((a, b) => a - b)
  }

  /** Takes from a row of logits what stands where none was computed, or where it was for another text. */
  leaveOut(logits: Float32Array, rare: readonly number[]): void {
    if (this.common === this.size) return
    const known = rare.map(token => logits[token])
    logits.fill(-Infinity, this.common)
    for (const [i, token] of rare.entries()) logits[token] = known[i]
  }
}
