// Attention on matrix units beside the reference: heads of several sizes, windows and sinks, runs that begin anywhere in pages
// in any order, rows that nobody has written, scores that grow along the way, and numbers that are not finite.
import { difference } from './difference.mjs'

const PAGE = 64
const BAND = 2e-3 // of the largest value
const STEEP_BAND = 1e-2 // scores of some hundred have fewer bits left
const SHAPES = [
  { numHeads: 16, numKvHeads: 2, headDim: 256, outputGate: true },
  { numHeads: 32, numKvHeads: 4, headDim: 128 },
  { numHeads: 16, numKvHeads: 2, headDim: 64, window: 128, sinks: true },
  { numHeads: 3, numKvHeads: 3, headDim: 192, window: 1 },
  { numHeads: 64, numKvHeads: 1, headDim: 64, sinks: true },
]
const RUNS = [
  [{ past: 0, count: 1 }],
  [{ past: 4999, count: 1 }],
  [
    { past: 31, count: 33 },
    { past: 0, count: 2 },
    { past: 200, count: 70 },
  ],
  [{ past: 1500, count: 100 }],
]

/** `plans`: runs that are evaluated together, once several; tokens of the first of these are spoilt. */
export async function checkAttention(
  { load, gpu, put, step, run, read, randomFloats, report },
  { shapes, plans, wrongs } = { shapes: SHAPES, plans: RUNS, wrongs: [Number.NaN, Number.POSITIVE_INFINITY] },
) {
  const { tensorAttentionOp, isForTensorAttention } = await load('ops/attention/tensorAttention.gpu.js')
  const { attention } = await load('ops/attention/reference.js')

  for (const sizes of shapes) {
    if (!isForTensorAttention(gpu, sizes)) throw new Error(`heads of ${sizes.headDim} are not for matrix units`)
    for (const plan of plans) await checkRuns(sizes, plan, 1, BAND)
    const several = plans.find(({ length }) => length > 1)
    await checkRuns(sizes, several, 12, STEEP_BAND)
    await checkNotFinite(sizes, several)
  }

  async function checkRuns(sizes, plan, steepness, band) {
    const data = makeData(sizes, plan, steepness)
    const got = await attend(data, data.tokens)
    let worst = 0
    for (const token of samples(plan))
      worst = Math.max(worst, difference(row(data, got, token), reference(data, token)))
    // The same tokens in other calls, the last run's alone among them.
    const cut = [data.tokens.slice(0, 1), data.tokens.slice(1, 40), data.tokens.slice(40)]
    const pieces = new Float32Array(got.length)
    for (const tokens of cut.filter(({ length }) => length > 0)) {
      pieces.set(await attend(data, tokens), tokens[0].at * sizes.numHeads * sizes.headDim)
    }
    forgetPages(data)
    const isSame = got.every((value, i) => Object.is(value, pieces[i]))
    const { numHeads, numKvHeads, headDim, window, sinks } = sizes
    const what = plan.map(({ past, count }) => `${count} at ${past}`).join(', ')
    const kind = `${numHeads}/${numKvHeads} heads of ${headDim}${window ? `, window ${window}` : ''}${sinks ? ', sinks' : ''}`
    report(
      `attention, ${kind}: ${what}${steepness > 1 ? ', steep' : ''}`,
      worst,
      isSame ? '' : 'depends on the cut',
      band,
    )
  }

  /** A number that is not finite reaches its own token, and no other that does not see it. */
  async function checkNotFinite(sizes, plan) {
    const data = makeData(sizes, plan, 1)
    const want = await attend(data, data.tokens)
    const spoilt = 10 // of the first run
    const others = data.tokens.filter(({ run, index }) => run > 0 || index < spoilt)
    for (const wrong of wrongs) {
      for (const where of ['keys', 'values', 'queries']) {
        const restore = data.spoil(where, spoilt, wrong)
        forgetPages(data)
        const got = await attend(data, data.tokens)
        restore()
        const isClean = others.every(({ at }) =>
          row(data, got, at).every((value, i) => Object.is(value, row(data, want, at)[i])),
        )
        const isSpoilt = row(data, got, spoilt).some(value => !Number.isFinite(value))
        const problem = !isClean ? 'reaches other tokens' : !isSpoilt ? 'is lost' : ''
        report(`attention, heads of ${sizes.headDim}, ${wrong} in ${where}`, 0, problem, BAND)
      }
    }
    forgetPages(data)
  }

  function makeData(sizes, plan, steepness) {
    const { numHeads, numKvHeads, headDim } = sizes
    const width = numKvHeads * headDim
    const count = plan.reduce((sum, each) => sum + each.count, 0)
    const pageCounts = plan.map(({ past, count }) => Math.ceil((past + count) / PAGE))
    const total = pageCounts.reduce((sum, each) => sum + each, 0)
    // Every other page is somebody else's, and those of a run are in reverse.
    const memory = new Float32Array((2 * total + 1) * 2 * PAGE * width).fill(Number.NaN)
    const table = Array.from({ length: total }, (_, i) => 2 * (total - i) - 1)
    const tokens = []
    let pages = 0
    for (const [r, { past, count }] of plan.entries()) {
      for (let position = 0; position < past + count; position++) {
        const at = rowAt(table[pages + Math.floor(position / PAGE)], position)
        memory.set(randomFloats(width, steepness), at)
        memory.set(randomFloats(width, 1), at + PAGE * width)
      }
      for (let i = 0; i < count; i++) tokens.push({ at: tokens.length, run: r, index: i, position: past + i, pages })
      pages += pageCounts[r]
    }
    const queries = randomFloats(count * numHeads * headDim, 4)
    const stride = sizes.outputGate ? numHeads * 2 * headDim + 2 * width : 4
    const inputs = randomFloats(count * stride, 3)
    const sinks = randomFloats(numHeads, 3)
    function rowAt(page, position) {
      return (page * 2 * PAGE + (position % PAGE)) * width
    }
    const spoil = (where, token, value) => {
      const { position, pages } = tokens[token]
      const at = rowAt(table[pages + Math.floor(position / PAGE)], position)
      const [list, place] =
        where === 'queries'
          ? [queries, token * numHeads * headDim]
          : [memory, at + (where === 'values' ? PAGE * width : 0)]
      const before = list[place]
      list[place] = value
      return () => {
        list[place] = before
      }
    }
    return { sizes, width, memory, table, tokens, queries, inputs, stride, sinks, rowAt, spoil, pages: null }
  }

  async function attend(data, tokens) {
    const { sizes, memory, table, queries, inputs, stride, sinks } = data
    const rowSize = sizes.numHeads * sizes.headDim
    const first = tokens[0].at
    const words = new Uint32Array(tokens.length * 8)
    const runs = []
    for (const [i, { run, index, position, pages }] of tokens.entries()) {
      if (runs.at(-1)?.run !== run) runs.push({ run, first: i, count: 0 })
      runs.at(-1).count++
      words.set([0, position, runs.length - 1, index, pages, 0, 0, 0], i * 8)
    }
    const buffers = {
      step: step(tokens.length, runs.length),
      tokenInfo: put(words),
      runInfo: put(Uint32Array.from(runs.flatMap(({ first, count }) => [first, count, 0, 0]))),
      queries: put(queries.slice(first * rowSize, (first + tokens.length) * rowSize)),
      inputs: put(inputs.slice(first * stride, (first + tokens.length) * stride)),
      sinks: sizes.sinks ? put(sinks) : null,
      out: put(new Float32Array(tokens.length * rowSize).fill(Number.NaN)),
    }
    const shape = { outputGate: sizes.outputGate === true, sinks: sizes.sinks === true, window: sizes.window ?? null }
    data.pages ??= put(memory) // most of the time goes into this
    const pool = { generation: 0, pageTable: put(Uint32Array.from(table)), buffer: () => data.pages }
    await run(await tensorAttentionOp(gpu, sizes, shape, buffers, pool, 0), tokens.length, runs.length)
    const got = await read(buffers.out, tokens.length * rowSize)
    for (const buffer of [...Object.values(buffers), pool.pageTable]) buffer?.destroy()
    return got
  }

  function forgetPages(data) {
    data.pages?.destroy()
    data.pages = null
  }

  function reference({ sizes, width, memory, table, tokens, queries, inputs, stride, sinks, rowAt }, token) {
    const { numHeads, numKvHeads, headDim, window = null, outputGate } = sizes
    const { position, pages } = tokens[token]
    const length = position + 1
    const keys = new Float32Array(length * width)
    const values = new Float32Array(length * width)
    for (let i = 0; i < length; i++) {
      const at = rowAt(table[pages + Math.floor(i / PAGE)], i)
      keys.set(memory.subarray(at, at + width), i * width)
      values.set(memory.subarray(at + PAGE * width, at + (PAGE + 1) * width), i * width)
    }
    const query = queries.subarray(token * numHeads * headDim, (token + 1) * numHeads * headDim)
    const shape = { heads: numHeads, kvHeads: numKvHeads, headDim, window }
    const out = attention(query, [keys], [values], length, length, shape, sizes.sinks ? sinks : null)
    if (!outputGate) return out
    const gate = (head, i) => inputs[token * stride + head * 2 * headDim + headDim + i]
    return out.map((value, i) => value / (1 + Math.exp(-gate(Math.floor(i / headDim), i % headDim))))
  }

  function row({ sizes }, got, token) {
    const size = sizes.numHeads * sizes.headDim
    return got.subarray(token * size, (token + 1) * size)
  }

  /** The first, one in the middle and the last token of each run. */
  function samples(plan) {
    const tokens = new Set()
    let first = 0
    for (const { count } of plan) {
      for (const index of [0, count >> 1, count - 1]) tokens.add(first + index)
      first += count
    }
    return tokens
  }
}
