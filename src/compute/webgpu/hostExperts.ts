// Experts of a token that are not on the GPU and that the host computes where their bytes are, while the GPU computes the
// others. Only sums come and go: a row of the residual stream per token in, a row to add to it out.

/** One expert that one token of the step was routed to. */
export interface HostPair {
  readonly token: number
  readonly expert: number
  readonly weight: number
}

export interface HostExperts {
  /** From so many tokens on, an expert of a prompt is better brought to the GPU. */
  readonly leastToBring: number
  /**
   * Per token the weighted sum of its pairs' experts over the norm of its hidden row; `hidden` [tokens, hidden]. Begins
   * before it returns. The result [tokens, hidden] is valid until the next call.
   */
  compute(layer: number, hidden: Float32Array, pairs: readonly HostPair[], signal?: AbortSignal): Promise<Float32Array>
}
