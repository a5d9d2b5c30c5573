// Helpers for walking a grammar with random tokens.

export function allowedTokens(mask: Uint32Array, vocabSize: number): number[] {
  const ids: number[] = []
  for (let id = 0; id < vocabSize; id++) if ((mask[id >>> 5] >>> (id & 31)) & 1) ids.push(id)
  return ids
}

/** Numbers in [0, 1) that a seed decides. */
export function generator(seed: number): () => number {
  let state = seed >>> 0 || 1
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}
