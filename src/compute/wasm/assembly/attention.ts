// Causal attention over K/V pages with a running softmax. A page is the unit of the running softmax, so sums are cut at
// absolute positions: a query gets the same bits alone or among others. Queries are taken in blocks that share a walk over
// the pages. Scratch, per query and head: the weighted values so far [headDim], maximum and sum, a page's scores.
import { exp4, exp1, madd, sumLanes, sumLanes4 } from './simd'

// @ts-ignore: decorator
@inline
const PAGE: i32 = 64
// @ts-ignore: decorator
@inline
const QUERY_BLOCK: i32 = 16

export function attention(
  out: usize, outStride: usize, q: usize, qTokenStride: usize, qHeadStride: usize, kPages: usize, vPages: usize,
  start: i32, tokens: i32, heads: i32, kvHeads: i32, headDim: i32, scale: f32, headBegin: i32, headEnd: i32, scratch: usize,
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
        store<f32>(state + headBytes, -Infinity)
        store<f32>(state + headBytes, 0, 4)
      }
    }
    const lastPage = (start + first + count - 1) / PAGE
    for (let page = 0; page <= lastPage; page++) {
      const kPage = <usize>load<u32>(kPages + (<usize>page << 2))
      const vPage = <usize>load<u32>(vPages + (<usize>page << 2))
      for (let h = headBegin; h < headEnd; h++) {
        const kvOffset = <usize>(h / perKvHead) * headBytes
        for (let t = 0; t < count; t++) {
          const visible = min(PAGE, start + first + t + 1 - page * PAGE)
          if (visible <= 0) continue
          const state = scratch + <usize>((h - headBegin) * count + t) * stateBytes
          const query = q + <usize>(first + t) * qTokenStride + <usize>h * qHeadStride
          addPage(state, query, kPage + kvOffset, vPage + kvOffset, rowBytes, headBytes, visible, scale)
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

/** Folds `visible` rows of a page into the state of one query and head. */
function addPage(
  state: usize, q: usize, k: usize, v: usize, rowBytes: usize, headBytes: usize, visible: i32, scale: f32,
): void {
  const scores = state + headBytes + 16
  const padded = (visible + 3) & ~3
  let top = f32x4.splat(-Infinity)
  for (let j = 0; j < padded; j += 4) {
    const k0 = k + <usize>j * rowBytes
    const k1 = k0 + rowBytes
    const k2 = k1 + rowBytes
    const k3 = k2 + rowBytes
    let sum0 = f32x4.splat(0)
    let sum1 = f32x4.splat(0)
    let sum2 = f32x4.splat(0)
    let sum3 = f32x4.splat(0)
    for (let i: usize = 0; i < headBytes; i += 16) {
      const a = v128.load(q + i)
      sum0 = madd(a, v128.load(k0 + i), sum0)
      sum1 = madd(a, v128.load(k1 + i), sum1)
      sum2 = madd(a, v128.load(k2 + i), sum2)
      sum3 = madd(a, v128.load(k3 + i), sum3)
    }
    let score = f32x4.mul(sumLanes4(sum0, sum1, sum2, sum3), f32x4.splat(scale))
    // Rows past the query's position are there, but hold nothing yet.
    const past = i32x4.ge_s(i32x4.add(i32x4.splat(j), i32x4(0, 1, 2, 3)), i32x4.splat(visible))
    score = v128.bitselect(f32x4.splat(-Infinity), score, past)
    v128.store(scores + (<usize>j << 2), score)
    top = f32x4.max(top, score)
  }
  top = f32x4.max(top, v128.shuffle<f32>(top, top, 2, 3, 0, 1))
  top = f32x4.max(top, v128.shuffle<f32>(top, top, 1, 0, 3, 2))
  const before = load<f32>(state + headBytes)
  const highest = max<f32>(before, f32x4.extract_lane(top, 0))
  const correction = exp1(before - highest)
  let total = f32x4.splat(0)
  for (let i: usize = 0, end = <usize>padded << 2; i < end; i += 16) {
    const p = exp4(f32x4.sub(v128.load(scores + i), f32x4.splat(highest)))
    v128.store(scores + i, p)
    total = f32x4.add(total, p)
  }
  store<f32>(state + headBytes, highest)
  store<f32>(state + headBytes, load<f32>(state + headBytes, 4) * correction + sumLanes(total), 4)

  const rescale = f32x4.splat(correction)
  const scoresEnd = scores + (<usize>visible << 2)
  let i: usize = 0
  for (; i + 64 <= headBytes; i += 64) {
    let sum0 = f32x4.mul(v128.load(state + i), rescale)
    let sum1 = f32x4.mul(v128.load(state + i, 16), rescale)
    let sum2 = f32x4.mul(v128.load(state + i, 32), rescale)
    let sum3 = f32x4.mul(v128.load(state + i, 48), rescale)
    let row = v + i
    for (let s = scores; s < scoresEnd; s += 4) {
      const p = v128.load32_splat(s)
      sum0 = madd(p, v128.load(row), sum0)
      sum1 = madd(p, v128.load(row, 16), sum1)
      sum2 = madd(p, v128.load(row, 32), sum2)
      sum3 = madd(p, v128.load(row, 48), sum3)
      row += rowBytes
    }
    v128.store(state + i, sum0)
    v128.store(state + i, sum1, 16)
    v128.store(state + i, sum2, 32)
    v128.store(state + i, sum3, 48)
  }
  for (; i < headBytes; i += 16) {
    let sum = f32x4.mul(v128.load(state + i), rescale)
    let row = v + i
    for (let s = scores; s < scoresEnd; s += 4) {
      sum = madd(v128.load32_splat(s), v128.load(row), sum)
      row += rowBytes
    }
    v128.store(state + i, sum)
  }
}
