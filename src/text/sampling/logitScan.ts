// Walks over the logits of a whole vocabulary: the best one, the best few, those that are likely. The GPU or the workers wait for
// each of them, so most tokens are passed over by their bits, eight at a time: those of floats above zero have the order of
// whole numbers, and comparing whole numbers takes a third of the time.
import { SamplingError } from '../../base/errors.js'

const DEEPEST = 50 // e^-50 times any vocabulary is nothing beside 1
const BUCKETS = 2048
const STEPS = 64
const DECAY = Float64Array.from({ length: DEEPEST * STEPS + 1 }, (_, i) => Math.exp(-i / STEPS))

const NO_FLOOR = -1
const one = new Float32Array(1)
const oneBits = bitsOf(one)

function bitsOf(logits: Float32Array): Int32Array {
  return new Int32Array(logits.buffer, logits.byteOffset, logits.length)
}

/** The first of eight tokens, from `token` on by eights, that are not all at the floor or below it. `floor`: bits of a number above zero. */
function skipBelow(bits: Int32Array, token: number, floor: number): number {
  if (floor === NO_FLOOR) return token
  const last = bits.length - 8
  while (
    token <= last &&
    bits[token] <= floor &&
    bits[token + 1] <= floor &&
    bits[token + 2] <= floor &&
    bits[token + 3] <= floor &&
    bits[token + 4] <= floor &&
    bits[token + 5] <= floor &&
    bits[token + 6] <= floor &&
    bits[token + 7] <= floor
  ) {
    token += 8
  }
  return token
}

/** A floor that no logit from `lowest` on is at or below, rounding included. */
function floorBelow(lowest: number): number {
  one[0] = lowest
  return lowest > 0 ? Math.max(0, oneBits[0] - 2) : NO_FLOOR
}

/** The index of the highest logit, the lowest such index. NaN never wins. */
export function argmax(logits: Float32Array): number {
  const bits = bitsOf(logits)
  let best = -1
  let bestLogit = Number.NEGATIVE_INFINITY
  let floor = NO_FLOOR
  for (let token = 0; token < logits.length; ) {
    token = skipBelow(bits, token, floor)
    for (const end = Math.min(token + 8, logits.length); token < end; token++) {
      if (!(logits[token] > bestLogit)) continue
      bestLogit = logits[token]
      best = token
      floor = bestLogit > 0 ? bits[token] : NO_FLOOR
    }
  }
  if (best < 0) throw nothingToChoose()
  return best
}

export function nothingToChoose(): SamplingError {
  return new SamplingError('no token can be chosen: every logit is NaN or -Infinity, or the grammar allows none')
}

/** e^-depth for depth >= 0 to nine digits, several times faster than Math.exp; 0 for NaN and beyond DEEPEST. */
export function decay(depth: number): number {
  if (!(depth < DEEPEST)) return 0
  const step = (depth * STEPS) | 0
  const rest = depth - step / STEPS
  return DECAY[step] * (1 - rest * (1 - rest * (0.5 - rest * (1 / 6))))
}

/** The `count` highest finite logits, best first; among equals the lower index. A min-heap that most tokens only touch. */
export function topTokens(logits: Float32Array, count: number): Int32Array {
  const heap = new Int32Array(Math.min(count, logits.length))
  const bits = bitsOf(logits)
  let size = 0
  let lowest = Number.NEGATIVE_INFINITY // that is worth a look
  const worse = (a: number, b: number) => logits[a] < logits[b] || (logits[a] === logits[b] && a > b)
  const put = (token: number) => {
    let i: number
    if (size < heap.length) {
      i = size++
      while (i > 0 && worse(token, heap[(i - 1) >> 1])) {
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
      }
    } else {
      i = 0
      for (;;) {
        let child = 2 * i + 1
        if (child >= size) break
        if (child + 1 < size && worse(heap[child + 1], heap[child])) child++
        if (!worse(heap[child], token)) break
        heap[i] = heap[child]
        i = child
      }
    }
    heap[i] = token
    if (size === heap.length) lowest = logits[heap[0]]
  }
  for (let token = 0; token < logits.length; ) {
    token = skipBelow(bits, token, lowest > 0 ? bits[heap[0]] : NO_FLOOR)
    for (const end = Math.min(token + 8, logits.length); token < end; token++) if (logits[token] > lowest) put(token)
  }
  return sorted(heap.subarray(0, size), logits)
}

export function finiteTokens(logits: Float32Array): Int32Array {
  const tokens = new Int32Array(logits.length)
  let count = 0
  for (let token = 0; token < logits.length; token++) if (logits[token] > -Infinity) tokens[count++] = token
  return tokens.subarray(0, count)
}

/** What top-p, then min-p, keep of all tokens, in no order, in `tokens`. A histogram of logits finds the depth that top-p
 *  reaches, so that only the tokens of one bucket need an order. */
export function likelyTokens(
  logits: Float32Array,
  best: number,
  scale: number,
  topP: number,
  minP: number,
  tokens: Int32Array, // [vocab]
): Int32Array {
  const bits = bitsOf(logits)
  let count = 0
  if (best === Number.POSITIVE_INFINITY) {
    for (let token = 0; token < logits.length; token++) if (logits[token] === best) tokens[count++] = token
    return tokens.subarray(0, count)
  }
  const deepest = minP > 0 ? Math.min(DEEPEST, -Math.log(minP)) : DEEPEST
  if (topP === 1) {
    const floor = floorBelow(best - deepest / scale)
    for (let token = 0; token < logits.length; ) {
      token = skipBelow(bits, token, floor)
      for (const end = Math.min(token + 8, logits.length); token < end; token++) {
        if ((best - logits[token]) * scale <= deepest) tokens[count++] = token
      }
    }
    return tokens.subarray(0, count)
  }
  const bucketsPerUnit = BUCKETS / DEEPEST
  const weights = new Float64Array(BUCKETS)
  for (let token = 0; token < logits.length; token++) {
    const depth = (best - logits[token]) * scale
    if (depth < DEEPEST) weights[(depth * bucketsPerUnit) | 0] += decay(depth)
  }
  const wanted = topP * sum(weights)
  let covered = 0
  let last = 0
  while (last < BUCKETS - 1 && covered + weights[last] < wanted) covered += weights[last++]
  const edge: number[] = []
  const floor = floorBelow(best - (last + 1) / bucketsPerUnit / scale)
  for (let token = 0; token < logits.length; ) {
    token = skipBelow(bits, token, floor)
    for (const end = Math.min(token + 8, logits.length); token < end; token++) {
      const depth = (best - logits[token]) * scale
      if (!(depth <= deepest)) continue
      const bucket = (depth * bucketsPerUnit) | 0
      if (bucket < last) tokens[count++] = token
      else if (bucket === last) edge.push(token)
    }
  }
  for (const token of sorted(Int32Array.from(edge), logits)) {
    if (covered >= wanted && count > 0) break
    covered += decay((best - logits[token]) * scale)
    tokens[count++] = token
  }
  return tokens.subarray(0, count)
}

export function sorted(tokens: Int32Array, logits: Float32Array, count = tokens.length): Int32Array {
  return tokens
    .slice()
    .sort((a, b) => logits[b] - logits[a] || a - b)
    .subarray(0, count)
}

export function sum(values: Float64Array): number {
  let total = 0
  for (let i = 0; i < values.length; i++) total += values[i]
  return total
}
