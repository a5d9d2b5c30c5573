// How many of a prompt's tokens picked which expert. Pure.

/** expert → tokens; adds to `counts` where there are some. */
export function countPicks(picks: Iterable<number>, counts = new Map<number, number>()): Map<number, number> {
  for (const expert of picks) counts.set(expert, (counts.get(expert) ?? 0) + 1)
  return counts
}

/** The experts, the most picked first. */
export function mostPicked(counts: ReadonlyMap<number, number>): number[] {
  return [...counts].sort((a, b) => b[1] - a[1]).map(([expert]) => expert)
}
