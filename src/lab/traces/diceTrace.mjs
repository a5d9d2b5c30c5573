// Routing drawn by dice, as a trace: experts by Zipf's law, topics that change, experts that stay for a while.

export function diceTrace({ layers = 8, experts = 128, k = 8, tokens = 400, zipf, topicTokens = 0, stay = 0, seed }) {
  let state = Math.imul(seed + 1, 0x9e3779b1)
  const random = () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 2 ** 32
  }
  const weights = () =>
    Array.from({ length: layers }, () => {
      const order = Array.from({ length: experts }, (_, i) => [random(), i]).sort((a, b) => a[0] - b[0])
      return order.map(([, rank]) => -zipf * Math.log(rank + 1))
    })
  const common = weights()
  let topic = weights()
  let previous = common.map(() => new Set())
  const steps = Array.from({ length: tokens }, () => {
    if (topicTokens > 0 && random() < 1 / topicTokens) topic = weights()
    previous = common.map((logs, layer) => {
      const scores = logs.map((log, expert) => {
        const weight = topicTokens > 0 ? 0.7 * (log + topic[layer][expert]) : log
        return [weight - Math.log(-Math.log(random())) + (previous[layer].has(expert) ? stay : 0), expert]
      })
      scores.sort((a, b) => b[0] - a[0])
      return new Set(scores.slice(0, k).map(([, expert]) => expert))
    })
    return { tokens: 1, experts: Uint16Array.from(previous.flatMap(set => [...set])) }
  })
  return { model: 'dice', layers, experts, expertsPerToken: k, expertBytes: 1, steps }
}
