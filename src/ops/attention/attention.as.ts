// Causal attention over K/V pages with a running softmax. A page is the unit of the running softmax, so sums are cut at
// absolute positions: a query gets the same bits alone or among others. Queries are taken in blocks that share a walk over
// the pages; with a window, from the first that one of them sees on. Scratch, per query and head: the weighted values so far
// [headDim]; maximum, sum and correction; a page's scores.
import { exp4, exp1, madd, sumLanes, sumLanes4 } from '../assembly/simd.as'

// @ts-ignore: decorator
@inline
const PAGE: i32 = 64
// @ts-ignore: decorator
@inline
const QUERY_BLOCK: i32 = 8

export function attention(
  out: usize, outStride: usize, q: usize, qTokenStride: usize, qHeadStride: usize, kPages: usize, vPages: usize,
  start: i32, tokens: i32, heads: i32, kvHeads: i32, headDim: i32, scale: f32, window: i32, sinks: usize,
  headBegin: i32, headEnd: i32, scratch: usize,
): void {
  const headBytes = <usize>headDim << 2
  const rowBytes = headBytes * kvHeads
  const stateBytes = headBytes + 16 + (PAGE << 2)
  const perKvHead = heads / kvHeads
  for (let first = 0; first < tokens; first += QUERY_BLOCK) {
    const count = min(QUERY_BLOCK, tokens - first)
    for (let h = headBegin; h < headEnd; h++) {
      for (let t = 0; t < count; t++) {
        const state = scratch + <usize>((h - headBegin) * count + t) * stateBytes
        memory.fill(state, 0, headBytes)
        // A sink is a logit without a value: the softmax begins with it.
        const sink: f32 = sinks == 0 ? -Infinity : load<f32>(sinks + (<usize>h << 2))
        store<f32>(state + headBytes, sink)
        store<f32>(state + headBytes, sinks == 0 ? 0 : 1, 4)
      }
    }
    const firstPage = window > 0 ? max(0, start + first + 1 - window) / PAGE : 0
    const lastPage = (start + first + count - 1) / PAGE
    for (let kvHead = headBegin / perKvHead; kvHead * perKvHead < headEnd; kvHead++) {
      const groupBegin = max(headBegin, kvHead * perKvHead)
      const groupEnd = min(headEnd, (kvHead + 1) * perKvHead)
      for (let page = firstPage; page <= lastPage; page++) {
        const k = <usize>load<u32>(kPages + (<usize>page << 2)) + <usize>kvHead * headBytes
        const v = <usize>load<u32>(vPages + (<usize>page << 2)) + <usize>kvHead * headBytes
        for (let t = 0; t < count; t++) {
          const visible = min(PAGE, start + first + t + 1 - page * PAGE)
          const hidden = window > 0 ? max(0, start + first + t + 1 - window - page * PAGE) : 0
          if (visible <= hidden) continue
          // Four rows at a time: a page begins at the four in which the first row is that counts.
          const skipped = hidden & ~3
          const shift = <usize>skipped * rowBytes
          const query = q + <usize>(first + t) * qTokenStride
          // Two heads that share keys and values go together; a last single one goes with itself, with the same result.
          for (let h = groupBegin; h < groupEnd; h += 2) {
            const next = min(h + 1, groupEnd - 1)
            addPage(
              scratch + <usize>((h - headBegin) * count + t) * stateBytes,
              scratch + <usize>((next - headBegin) * count + t) * stateBytes,
              query + <usize>h * qHeadStride, query + <usize>next * qHeadStride,
              k + shift, v + shift, rowBytes, headBytes, hidden - skipped, visible - skipped, scale,
            )
          }
        }
      }
    }
    for (let h = headBegin; h < headEnd; h++) {
      for (let t = 0; t < count; t++) {
        const state = scratch + <usize>((h - headBegin) * count + t) * stateBytes
        const to = out + <usize>(first + t) * outStride + <usize>h * headBytes
        const inverse = f32x4.splat(1 / load<f32>(state + headBytes, 4))
        for (let i: usize = 0; i < headBytes; i += 16) v128.store(to + i, f32x4.mul(v128.load(state + i), inverse))
      }
    }
  }
}

/** Folds rows [hidden, visible) from k and v on into the states of one query and two heads; hidden: at most 3. */
function addPage(
  state0: usize, state1: usize, query0: usize, query1: usize, k: usize, v: usize,
  rowBytes: usize, headBytes: usize, hidden: i32, visible: i32, scale: f32,
): void {
  const padded = (visible + 3) & ~3
  scorePage(state0 + headBytes + 16, state1 + headBytes + 16, query0, query1, k, rowBytes, headBytes, padded)
  const before0 = load<f32>(state0 + headBytes)
  const before1 = load<f32>(state1 + headBytes)
  const total0 = load<f32>(state0 + headBytes, 4)
  const total1 = load<f32>(state1 + headBytes, 4)
  softmaxPage(state0 + headBytes, before0, total0, hidden, visible, padded, scale)
  if (state1 != state0) softmaxPage(state1 + headBytes, before1, total1, hidden, visible, padded, scale)
  addValues(state0, state1, v, rowBytes, headBytes, visible)
}

/** Products of both queries with four keys at a time. */
// @ts-ignore: decorator
@inline
function scorePage(
  scores0: usize, scores1: usize, query0: usize, query1: usize, k: usize, rowBytes: usize, headBytes: usize, padded: i32,
): void {
  const scoresEnd = scores0 + (<usize>padded << 2)
  do {
    let k0 = k
    let k1 = k0 + rowBytes
    let k2 = k1 + rowBytes
    let k3 = k2 + rowBytes
    let q0 = query0
    let q1 = query1
    let a0 = f32x4.splat(0)
    let a1 = f32x4.splat(0)
    let a2 = f32x4.splat(0)
    let a3 = f32x4.splat(0)
    let b0 = f32x4.splat(0)
    let b1 = f32x4.splat(0)
    let b2 = f32x4.splat(0)
    let b3 = f32x4.splat(0)
    const end = k + headBytes
    do {
      const a = v128.load(q0)
      const b = v128.load(q1)
      let key = v128.load(k0)
      a0 = madd(a, key, a0)
      b0 = madd(b, key, b0)
      key = v128.load(k1)
      a1 = madd(a, key, a1)
      b1 = madd(b, key, b1)
      key = v128.load(k2)
      a2 = madd(a, key, a2)
      b2 = madd(b, key, b2)
      key = v128.load(k3)
      a3 = madd(a, key, a3)
      b3 = madd(b, key, b3)
      q0 += 16
      q1 += 16
      k0 += 16
      k1 += 16
      k2 += 16
      k3 += 16
    } while (k0 < end)
    v128.store(scores0, sumLanes4(a0, a1, a2, a3))
    v128.store(scores1, sumLanes4(b0, b1, b2, b3))
    k += rowBytes << 2
    scores0 += 16
    scores1 += 16
  } while (scores0 < scoresEnd)
}

/** Scores become weights relative to the highest so far; what was there before is corrected by the factor left in slot 2. */
function softmaxPage(
  state: usize, before: f32, total: f32, hidden: i32, visible: i32, padded: i32, scale: f32,
): void {
  const scores = state + 16
  const scoresEnd = scores + (<usize>padded << 2)
  // Rows past the query's position are there, but hold nothing yet.
  for (let j = visible; j < padded; j++) store<f32>(scores + (<usize>j << 2), -Infinity)
  for (let j = 0; j < hidden; j++) store<f32>(scores + (<usize>j << 2), -Infinity)
  let top = f32x4.splat(-Infinity)
  let at = scores
  do {
    const score = f32x4.mul(v128.load(at), f32x4.splat(scale))
    v128.store(at, score)
    top = f32x4.max(top, score)
    at += 16
  } while (at < scoresEnd)
  top = f32x4.max(top, v128.shuffle<f32>(top, top, 2, 3, 0, 1))
  top = f32x4.max(top, v128.shuffle<f32>(top, top, 1, 0, 3, 2))
  const highest = max<f32>(before, f32x4.extract_lane(top, 0))
  const correction = exp1(before - highest)
  let sum = f32x4.splat(0)
  at = scores
  do {
    const p = exp4(f32x4.sub(v128.load(at), f32x4.splat(highest)))
    v128.store(at, p)
    sum = f32x4.add(sum, p)
    at += 16
  } while (at < scoresEnd)
  store<f32>(state, highest)
  store<f32>(state, total * correction + sumLanes(sum), 4)
  store<f32>(state, correction, 8)
}

/** state = state · correction + Σ weight · value for both heads, rows ascending, four at a time as they lie in memory. */
// @ts-ignore: decorator
@inline
function addValues(state0: usize, state1: usize, v: usize, rowBytes: usize, headBytes: usize, visible: i32): void {
  const correction0 = v128.load32_splat(state0 + headBytes + 8)
  const correction1 = v128.load32_splat(state1 + headBytes + 8)
  let weight0 = state0 + headBytes + 16
  let weight1 = state1 + headBytes + 16
  const weightsEnd = weight0 + (<usize>visible << 2)
  const end0 = state0 + headBytes
  let at0 = state0
  let at1 = state1
  do {
    // Both are read before one is written: they may be the same.
    const a = f32x4.mul(v128.load(at0), correction0)
    const b = f32x4.mul(v128.load(at1), correction1)
    v128.store(at0, a)
    v128.store(at1, b)
    at0 += 16
    at1 += 16
  } while (at0 < end0)
  while (weight0 + 16 <= weightsEnd) {
    const p0 = v128.load32_splat(weight0)
    const p1 = v128.load32_splat(weight0, 4)
    const p2 = v128.load32_splat(weight0, 8)
    const p3 = v128.load32_splat(weight0, 12)
    const r0 = v128.load32_splat(weight1)
    const r1 = v128.load32_splat(weight1, 4)
    const r2 = v128.load32_splat(weight1, 8)
    const r3 = v128.load32_splat(weight1, 12)
    let v0 = v
    let v1 = v0 + rowBytes
    let v2 = v1 + rowBytes
    let v3 = v2 + rowBytes
    at0 = state0
    at1 = state1
    do {
      let a = v128.load(at0)
      let b = v128.load(at1)
      let value = v128.load(v0)
      a = madd(p0, value, a)
      b = madd(r0, value, b)
      value = v128.load(v1)
      a = madd(p1, value, a)
      b = madd(r1, value, b)
      value = v128.load(v2)
      a = madd(p2, value, a)
      b = madd(r2, value, b)
      value = v128.load(v3)
      v128.store(at0, madd(p3, value, a))
      v128.store(at1, madd(r3, value, b))
      at0 += 16
      at1 += 16
      v0 += 16
      v1 += 16
      v2 += 16
      v3 += 16
    } while (at0 < end0)
    weight0 += 16
    weight1 += 16
    v += rowBytes << 2
  }
  while (weight0 < weightsEnd) {
    const p = v128.load32_splat(weight0)
    const r = v128.load32_splat(weight1)
    at0 = state0
    at1 = state1
    let row = v
    do {
      const value = v128.load(row)
      const a = madd(p, value, v128.load(at0))
      const b = madd(r, value, v128.load(at1))
      v128.store(at0, a)
      v128.store(at1, b)
      at0 += 16
      at1 += 16
      row += 16
    } while (at0 < end0)
    weight0 += 4
    weight1 += 4
    v += rowBytes
  }
}
