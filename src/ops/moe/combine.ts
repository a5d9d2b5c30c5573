// The MoE block's output: Σ w_e·expert_e(x) in the router's order, plus the shared expert where there is one.

/**
 * routed [tokens, K, hidden], weights [tokens, K], shared [tokens, hidden], sharedGate [tokens] -> [tokens, hidden].
 * Without a gate the shared expert counts once.
 */
export function combine(
  routed: Float32Array,
  weights: Float32Array,
  shared: Float32Array | null,
  sharedGate: Float32Array | null,
  tokens: number,
): Float32Array {
  const k = weights.length / tokens
  const hidden = routed.length / weights.length
  const out = new Float32Array(tokens * hidden)
  for (let t = 0; t < tokens; t++) {
    const gate = sharedGate === null ? 1 : sharedGate[t]
    for (let i = 0; i < hidden; i++) {
      let sum = 0
      for (let rank = 0; rank < k; rank++) sum += weights[t * k + rank] * routed[(t * k + rank) * hidden + i]
      out[t * hidden + i] = shared === null ? sum : sum + gate * shared[t * hidden + i]
    }
  }
  return out
}
