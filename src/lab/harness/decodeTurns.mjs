// Turns of as many tokens each: their order, and what their speeds come to.

export function shuffled(values) {
  return values
    .map(value => ({ value, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ value }) => value)
}

/** All tokens by all time. */
export function meanRate(rates) {
  return rates.length / rates.reduce((sum, rate) => sum + 1 / rate, 0)
}
