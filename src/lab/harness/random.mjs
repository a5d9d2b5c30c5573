// Seeded random choices. The parts of a seed name what is chosen (`seededRandom(7, 'client', 3)`), so that one case can be
// made again without the ones before it.

/** mulberry32 over a hash of the parts. */
export function seededRandom(...parts) {
  let state = 2166136261
  for (const character of parts.join('/')) state = Math.imul(state ^ character.codePointAt(0), 16777619)
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
  const below = count => Math.floor(next() * count)
  return {
    next,
    below,
    /** A whole number from `low` to `high`, both included. */
    between: (low, high) => low + below(high - low + 1),
    chance: share => next() < share,
    pick: list => list[below(list.length)],
    /** One of `[weight, value]`, as often as its weight says. */
    weighted(choices) {
      let at = next() * choices.reduce((sum, [weight]) => sum + weight, 0)
      for (const [weight, value] of choices) {
        at -= weight
        if (at < 0) return value
      }
      return choices[0][1]
    },
    bytes: length => Uint8Array.from({ length }, () => below(256)),
  }
}
