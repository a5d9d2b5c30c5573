// Softmax attention of one token over the K/V rows up to and including its own. Query head h uses kv head
// h / (heads / kvHeads). K/V rows lie in pages; plain arrays are one page each.

export interface AttentionShape {
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
  /** The newest positions that count; default all. */
  readonly window?: number | null
  /** Rows before it hold nothing; default 0. */
  readonly firstRow?: number
}

/**
 * query [heads, headDim]; keys and values: pages of [pageTokens, kvHeads * headDim], of which `length` rows count
 * -> [heads, headDim]
 */
export function attention(
  query: Float32Array,
  keys: readonly Float32Array[],
  values: readonly Float32Array[],
  pageTokens: number,
  length: number,
  shape: AttentionShape,
  sinks: Float32Array | null = null, // [heads], one more logit in each softmax
): Float32Array {
  const { heads, kvHeads, headDim, window, firstRow = 0 } = shape
  const first = Math.max(firstRow, length - (window ?? length))
  const rowSize = kvHeads * headDim
  const scale = headDim ** -0.5
  const out = new Float32Array(heads * headDim)
  const scores = new Float64Array(length)
  const sums = new Float64Array(headDim)
  for (let head = 0; head < heads; head++) {
    const kvStart = Math.floor(head / (heads / kvHeads)) * headDim
    const sink = sinks?.[head] ?? Number.NEGATIVE_INFINITY
    let max = sink
    for (let position = first; position < length; position++) {
      const page = keys[Math.floor(position / pageTokens)]
      const row = (position % pageTokens) * rowSize + kvStart
      let score = 0
      for (let i = 0; i < headDim; i++) score += query[head * headDim + i] * page[row + i]
      scores[position] = score * scale
      if (scores[position] > max) max = scores[position]
    }
    let total = Math.exp(sink - max)
    sums.fill(0)
    for (let position = first; position < length; position++) {
      const weight = Math.exp(scores[position] - max)
      const page = values[Math.floor(position / pageTokens)]
      const row = (position % pageTokens) * rowSize + kvStart
      total += weight
      for (let i = 0; i < headDim; i++) sums[i] += weight * page[row + i]
    }
    for (let i = 0; i < headDim; i++) out[head * headDim + i] = sums[i] / total
  }
  return out
}
