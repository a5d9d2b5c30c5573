// Which of a prompt's missing experts go to the GPU, and which the processors compute where they lie. Both sides work at the
// same time, so experts go up, those of most tokens first, as long as that lets the slower side end sooner. What goes up while
// a GPU is not yet full of better experts also stays there, and the next tokens find it. Pure.

export interface PromptTimes {
  readonly uploadSeconds: number // of an expert
  readonly expertSeconds: number // of the processors, for one token
  readonly tokenSeconds: number // for each token more
}

/** By time, or from so many tokens of an expert on. */
export type PromptRule = { readonly times: PromptTimes } | { readonly uploadFromTokens: number }

/** `tokensOf`: of the experts that are not on the GPU. */
export function expertsToBring(tokensOf: ReadonlyMap<number, number>, rule: PromptRule): Set<number> {
  if ('uploadFromTokens' in rule) {
    return new Set([...tokensOf].filter(([, tokens]) => tokens >= rule.uploadFromTokens).map(([expert]) => expert))
  }
  const { uploadSeconds, expertSeconds, tokenSeconds } = rule.times
  const secondsOf = (tokens: number) => expertSeconds + (tokens - 1) * tokenSeconds
  const byTokens = [...tokensOf].sort((a, b) => b[1] - a[1] || a[0] - b[0])
  let processors = byTokens.reduce((sum, [, tokens]) => sum + secondsOf(tokens), 0)
  let bus = 0
  const brought = new Set<number>()
  for (const [expert, tokens] of byTokens) {
    const without = processors - secondsOf(tokens)
    if (Math.max(without, bus + uploadSeconds) >= Math.max(processors, bus)) break
    processors = without
    bus += uploadSeconds
    brought.add(expert)
  }
  return brought
}
