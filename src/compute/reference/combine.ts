// The MoE block's output: Σ w_e·expert_e(x) in the router's order, plus the gated shared expert.

/** routed [tokens, K, hidden], weights [tokens, K], shared [tokens, hidden], sharedGate [tokens] -> [tokens, hidden] */
export function combine(
  routed: Float32Array,
  weights: Float32Array,
  shared: Float32Array,
  sharedGate: Float32Array,
): Float32Array {
  const tokens = sharedGate.length
  const hidden = shared.length / tokens
  const k = weights.length / tokens
  const out = new Float32Array(shared.length)
  for (let t = 0; t < tokens; t++) {
    for (let i = 0; i < hidden; i++) {
      let sum = 0
      for (let rank = 0; rank < k; rank++) sum += weights[t * k + rank] * routed[(t * k + rank) * hidden + i]
      out[t * hidden + i] = sum + sharedGate[t] * shared[t * hidden + i]
    }
  }
  return out
}
