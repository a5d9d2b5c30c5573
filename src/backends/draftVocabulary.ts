// Tokens that a head for drafts may guess. Logits of a whole vocabulary of 250,000 are most of what a guess costs a processor, and few
// of them ever win: vocabularies are made by joining the most frequent pieces first, so that low ids are frequent tokens, and of the
// others a text mostly repeats those that it has had already. A token that is left out is not guessed; texts stay the same. How much of
// texts that covers: performance-log.md. Pure.

/** The first so many tokens of a vocabulary that is half as large again, at least. */
const COMMON_TOKENS = 65_536
const MUCH_LARGER = 1.5

/** How far back a text is looked at. */
const LOOK_BACK = 8192

/** Rare tokens of all texts that guesses are made for at once, each of which has the same share. */
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

  /** Those of a text beside the common ones: what came last, if there are more than its share among so many texts. */
  rareOf(text: readonly number[], texts = 1): ReadonlySet<number> {
    const rare = new Set<number>()
    if (this.common === this.size) return rare
    const most = Math.floor(MOST_RARE_TOKENS / texts)
    const from = Math.max(0, text.length - LOOK_BACK)
    for (let i = text.length - 1; i >= from && rare.size < most; i--) if (text[i] >= this.common) rare.add(text[i])
    return rare
  }

  /** Takes from a row of logits what stands where none was computed, or where it was for another text. */
  leaveOut(logits: Float32Array, rare: ReadonlySet<number>): void {
    const known = [...rare].map(token => [token, logits[token]] as const)
    logits.fill(-Infinity, this.common)
    for (const [token, logit] of known) logits[token] = logit
  }
}
