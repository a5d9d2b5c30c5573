// The WGSL kernels between the matrices against the reference on random shapes (odd head counts, K = 1, one expert, long
// inputs), with subgroups and without. Outputs begin as NaN and must be written whole.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { PAGE_TOKENS } from '#moeflux/backends/kvPages.js'
import { type PlannedRun, StepInfo } from '#moeflux/backends/webgpu/memory/stepInfo.js'
import { createWorkspace } from '#moeflux/backends/webgpu/memory/workspace.js'
import { KvPool } from '#moeflux/gpu/memory/kvPool.js'
import { StatePool } from '#moeflux/gpu/memory/statePool.js'
import type { ModelConfig } from '#moeflux/model/config.js'
import { type AttentionShape, SOFTMAX_ROUTER } from '#moeflux/model/layers.js'
import { linearColumns, stateQuads } from '#moeflux/model/linearShape.js'
import { ropeFrequencies } from '#moeflux/model/ropeFrequencies.js'
import { sigmoidGate, swiGlu } from '#moeflux/ops/activation/reference.js'
import { swiGluOp } from '#moeflux/ops/activation/swiGlu.gpu.js'
import { argmaxOp, NOT_FINITE } from '#moeflux/ops/argmax/argmax.gpu.js'
import { attentionOp } from '#moeflux/ops/attention/attention.gpu.js'
import { attentionInputOp } from '#moeflux/ops/attention/attentionInput.gpu.js'
import { attentionReduceOp } from '#moeflux/ops/attention/attentionReduce.gpu.js'
import { attentionColumns, attentionPartsBytes } from '#moeflux/ops/attention/attentionShape.gpu.js'
import { attentionStepOp } from '#moeflux/ops/attention/attentionStep.gpu.js'
import { attention } from '#moeflux/ops/attention/reference.js'
import { conv1dOp } from '#moeflux/ops/conv1d/conv1d.gpu.js'
import { conv1d } from '#moeflux/ops/conv1d/reference.js'
import { embedOp } from '#moeflux/ops/embed/embed.gpu.js'
import { embed } from '#moeflux/ops/embed/reference.js'
import { gatedDeltaOp } from '#moeflux/ops/gatedDelta/gatedDelta.gpu.js'
import { linearStepOp } from '#moeflux/ops/gatedDelta/gatedDeltaStep.gpu.js'
import { deltaGates, gatedDelta } from '#moeflux/ops/gatedDelta/reference.js'
import { combineOp } from '#moeflux/ops/moe/combine.gpu.js'
import { groupTokensOp } from '#moeflux/ops/moe/groupTokens.gpu.js'
import { combine } from '#moeflux/ops/moe/reference.js'
import { addNormOp } from '#moeflux/ops/norm/addNorm.gpu.js'
import { finiteRowsOp } from '#moeflux/ops/norm/finiteRows.gpu.js'
import { l2Norm, rmsNorm, rmsNormGated } from '#moeflux/ops/norm/reference.js'
import { rmsNormGatedOp } from '#moeflux/ops/norm/rmsNormGated.gpu.js'
import { rope } from '#moeflux/ops/rope/reference.js'
import { router } from '#moeflux/ops/router/reference.js'
import { logitsStride, NOT_LEFT, routerOp } from '#moeflux/ops/router/router.gpu.js'
import { GpuArena } from '../support/gpu/gpuArena.js'
import { fromHalves, HALVES } from '../support/gpu/halfRows.js'
import { expectClose, expectSameBits, KERNEL } from '../support/ops/bands.js'
import { randomFloats, randomQuantized, seededRandom } from '../support/random.js'

const seeds = fc.integer({ min: 1, max: 2 ** 31 })
const upTo = (max: number) => fc.integer({ min: 1, max })
const MISSING = 0xffffffff
const largest = 128 * 2 ** 20

// The kinds of qwen3_5_moe; the others are in webgpuKernelsKinds.gpu.test.ts.
const moe = { router: SOFTMAX_ROUTER, shared: 'gated' } as const
const gatedAttention: AttentionShape = {
  kind: 'full_attention',
  ...{ outputGate: true, qkNorm: true, qkvBias: false, outputBias: false, window: null, sinks: false },
  rope: { dims: 8, theta: 1e7, yarn: null },
}

const devices = [
  { name: 'subgroups', options: {} },
  { name: 'portable', options: { subgroups: false, packedDot: false, defaultLimits: true } },
]

describe.each(devices)('operations, $name', ({ options }) => {
  let arena: GpuArena
  beforeAll(async () => {
    arena = await GpuArena.open(options)
  })
  afterAll(() => arena.close())

  test('addNorm, swiGlu, embed', async () => {
    const property = fc.asyncProperty(upTo(40), upTo(4), fc.boolean(), seeds, async (eights, tokens, adds, seed) => {
      const width = eights * 8
      const random = seededRandom(seed)
      const gpu = arena.exact
      const x = randomFloats(random, tokens * width, 3)
      const delta = randomFloats(random, tokens * width)
      const weight = randomFloats(random, width)
      const [hidden, out] = [arena.put(x), arena.poisoned(tokens * width)]
      const norm = { weight: arena.put(weight), delta: adds ? arena.put(delta) : null, hidden, out }
      await arena.run(await addNormOp(gpu, norm, width, 1e-6), { tokens })
      const sum = adds ? x.map((value, i) => value + delta[i]) : x
      expectSameBits(await arena.floats(hidden, x.length), sum, 'hidden')
      const wanted = rmsNorm(sum, weight, 1e-6)
      expectClose(await arena.floats(out, x.length), wanted, KERNEL, 'norm')
      const halves = arena.poisoned(x.length / 2)
      await arena.run(await addNormOp(gpu, { ...norm, delta: null, out: null, halves }, width, 1e-6), { tokens })
      expectClose(fromHalves(await arena.words(halves, x.length / 2)), wanted, HALVES, 'norm as half floats')

      const pairs = randomFloats(random, tokens * 2 * width, 20)
      const activated = arena.poisoned(tokens * width)
      await arena.run(await swiGluOp(gpu, arena.put(pairs), activated, width, 1, { kind: 'silu' }), { tokens })
      const halfOf = (at: number) =>
        Float32Array.from(x, (_, i) => pairs[Math.floor(i / width) * 2 * width + at + (i % width)])
      expectClose(await arena.floats(activated, x.length), swiGlu(halfOf(0), halfOf(width)), KERNEL, 'swiglu')
    })
    await fc.assert(property, { numRuns: 8 })

    for (const [bits, group] of [
      [2, 32],
      [4, 64],
      [8, 128],
    ] as const) {
      const random = seededRandom(bits)
      const table = randomQuantized(random, 11, 2 * group, bits, group)
      const tokens = [10, 0, 3]
      const info = Uint32Array.from(tokens.flatMap(token => [token, 0, 0, 0, 0, 0, 0, 0]))
      const hidden = arena.poisoned(tokens.length * table.cols)
      await arena.run(await embedOp(arena.exact, [arena.matrix(table)], arena.put(info), hidden), { tokens: 3 })
      expectSameBits(await arena.floats(hidden, tokens.length * table.cols), embed(table, tokens), 'embedding rows')
    }
  })

  test('router: equal logits, one expert, guesses for the next layers, misses; combine', async () => {
    const shapes = fc.record({ experts: upTo(40), k: upTo(8), ahead: fc.nat(2), tokens: upTo(3), seed: seeds })
    const property = fc.asyncProperty(shapes, async ({ experts, k: most, ahead, tokens, seed }) => {
      const random = seededRandom(seed)
      const k = Math.min(most, experts)
      const layers = 3
      const layer = 1
      const shape = { experts, k, maxTokens: 4, logitsStride: logitsStride(experts, ahead), pairTile: 32 }
      // A few distinct values, so that many are equal.
      const logits = randomFloats(random, tokens * shape.logitsStride, 4).map(value => Math.round(value))
      const slots = Uint32Array.from({ length: layers * experts }, () => (random() < 0.8 ? random() * 100 : MISSING))
      const choice = arena.poisoned((layers + ahead + 1) * 4 * k)
      const leftRow = layers + ahead
      const mixing = arena.poisoned(tokens * (k + 1) * 2)
      const status = arena.put(new Uint32Array(4))
      const buffers = {
        ...{ logits: arena.put(logits), slotTable: arena.put(slots), choice, mixing, status },
        selectionBias: null,
      }
      const decode = { sharedSlot: 77, ahead, layers, spareSlot: 78, leftRow }
      await arena.run(await routerOp(arena.exact, shape, moe, buffers, layer, decode), { tokens })
      const chosen = await arena.words(choice, (layers + ahead) * 4 * k)
      const mixed = await arena.words(mixing, tokens * (k + 1) * 2)
      const weights = new Float32Array(mixed.buffer)
      let misses = 0
      for (let t = 0; t < tokens; t++) {
        const row = logits.subarray(t * shape.logitsStride)
        const want = router(row.slice(0, experts), experts, k)
        expect([...chosen.subarray((layer * 4 + t) * k, (layer * 4 + t + 1) * k)]).toEqual([...want.indices])
        for (let rank = 0; rank < k; rank++) {
          const slot = slots[layer * experts + want.indices[rank]]
          if (slot === MISSING) misses++
          expect(mixed[(t * (k + 1) + rank) * 2]).toBe(slot)
          expect(weights[(t * (k + 1) + rank) * 2 + 1]).toBeCloseTo(want.weights[rank], 5)
        }
        expect(mixed[(t * (k + 1) + k) * 2], 'the shared expert is last').toBe(77)
        expect(weights[(t * (k + 1) + k) * 2 + 1]).toBeCloseTo(1 / (1 + Math.exp(-row[experts])), 5)
        for (let i = 0; i < ahead; i++) {
          const from = experts + 1 + i * experts
          const guess = router(row.slice(from, from + experts), experts, k)
          const at = ((layers + i) * 4 + t) * k
          expect([...chosen.subarray(at, at + k)], `guess ${i}`).toEqual([...guess.indices])
        }
      }
      expect((await arena.words(status, 1))[0]).toBe(misses > 0 ? layer + 1 : 0)

      const helped = arena.poisoned(tokens * (k + 1) * 2)
      const helpedStatus = arena.put(new Uint32Array([0, layer + 1, 0, 0]))
      const beside = { ...buffers, mixing: helped, status: helpedStatus }
      await arena.run(await routerOp(arena.exact, shape, moe, beside, layer, decode), { tokens })
      const left = await arena.words(helped, tokens * (k + 1) * 2)
      for (let i = 0; i < left.length; i += 2) {
        const isMissing = mixed[i] === MISSING
        expect([left[i], left[i + 1]], 'experts that the host computes').toEqual(
          isMissing ? [78, 0] : [mixed[i], mixed[i + 1]],
        )
      }
      expect((await arena.words(helpedStatus, 1))[0], 'no miss where the host helps').toBe(0)
      const forHost = (await arena.words(choice, (leftRow + 1) * 4 * k)).subarray(leftRow * 4 * k)
      for (let t = 0; t < tokens; t++) {
        for (let rank = 0; rank < k; rank++) {
          const at = (t * (k + 1) + rank) * 2
          const want = mixed[at] === MISSING ? mixed[at + 1] : NOT_LEFT
          expect(forHost[t * k + rank], 'the weights that the host needs').toBe(want)
        }
      }

      // A logit that is not finite does not vanish because its expert is not chosen.
      const wrong = Math.floor(random() * experts)
      logits[wrong] = random() < 0.5 ? Number.NaN : Number.NEGATIVE_INFINITY
      const broken = { ...buffers, logits: arena.put(logits), status: arena.put(new Uint32Array(4)) }
      await arena.run(await routerOp(arena.exact, shape, moe, broken, layer, decode), { tokens })
      const spoiled = new Float32Array((await arena.words(mixing, tokens * (k + 1) * 2)).buffer)
      for (let t = 0; t < tokens; t++) {
        const finite = Array.from({ length: k }, (_, rank) => Number.isFinite(spoiled[(t * (k + 1) + rank) * 2 + 1]))
        expect(finite).toEqual(new Array(k).fill(t > 0))
      }

      const width = 37
      const rows = randomFloats(random, tokens * k * width)
      const shared = randomFloats(random, tokens * width)
      const mix = randomFloats(random, tokens * k)
      const pairs = new Uint32Array(tokens * k * 2)
      new Float32Array(pairs.buffer).forEach((_, i, all) => {
        if (i % 2 === 1) all[i] = mix[i >> 1]
      })
      const out = arena.poisoned(tokens * width)
      const sums = { expertRows: arena.put(rows), mixing: arena.put(pairs), sharedRows: arena.put(shared), out }
      await arena.run(await combineOp(arena.exact, shape, moe.shared, { ...sums, logits: buffers.logits }, width), {
        tokens,
      })
      const gates = Float32Array.from({ length: tokens }, (_, t) => {
        return 1 / (1 + Math.exp(-logits[t * shape.logitsStride + experts]))
      })
      expectClose(await arena.floats(out, tokens * width), combine(rows, mix, shared, gates, tokens), KERNEL, 'combine')
    })
    // One expert more than a workgroup has threads, and more of them chosen than that.
    const many = [2, 261].map(k => ({ experts: k + 255, k, ahead: 1, tokens: 2, seed: 3 }))
    await fc.assert(property, { numRuns: 8, examples: many.map(shape => [shape]) })
  })

  test('argmax: the first of the largest, over short and long rows', async () => {
    const property = fc.asyncProperty(fc.constantFrom(1, 7, 1000, 5003), seeds, async (count, seed) => {
      const random = seededRandom(seed)
      const logits = randomFloats(random, 2 * count, 50).map(value => Math.round(value))
      const out = arena.poisoned(2)
      const width = 1 + Math.floor(random() * 700)
      const source = randomFloats(random, 2 * width)
      const run = async () => {
        const made = { rows: arena.put(source), width }
        await arena.run(await argmaxOp(arena.exact, arena.put(logits), count, made, 2, out), { tokens: 2 })
        return [...(await arena.words(out, 2))]
      }
      const want = [0, 1].map(row => {
        const values = logits.subarray(row * count, (row + 1) * count)
        return values.indexOf(Math.max(...values))
      })
      expect(await run()).toEqual(want)
      // One value that is not finite, among the logits or in what they were made of.
      logits[count + Math.floor(random() * count)] = random() < 0.5 ? Number.NaN : Number.NEGATIVE_INFINITY
      expect(await run()).toEqual([want[0], NOT_FINITE])
      source[Math.floor(random() * width)] = random() < 0.5 ? Number.NaN : Number.POSITIVE_INFINITY
      expect(await run()).toEqual([NOT_FINITE, NOT_FINITE])
    })
    await fc.assert(property, { numRuns: 6 })
  })

  test('finite rows: one value among them raises the flag, wherever it is', async () => {
    const property = fc.asyncProperty(upTo(5), upTo(600), seeds, async (rows, width, seed) => {
      const random = seededRandom(seed)
      const values = randomFloats(random, rows * width, 1e30)
      const flag = arena.put(new Float32Array(1))
      const run = async () => {
        await arena.run(await finiteRowsOp(arena.exact, arena.put(values), width, flag), { tokens: rows })
        return (await arena.words(flag, 1))[0]
      }
      expect(await run()).toBe(0)
      values[Math.floor(random() * values.length)] = random() < 0.5 ? Number.NaN : Number.NEGATIVE_INFINITY
      expect(await run()).toBe(1)
    })
    await fc.assert(property, { numRuns: 6 })
  })

  test('linear attention: many tokens by conv1d, gatedDelta and rmsNormGated, one by linearStep', async () => {
    const shapes = fc.record({
      keyHeads: upTo(3),
      share: upTo(3),
      keyDim: fc.constantFrom(16, 32, 48),
      valueDim: fc.constantFrom(16, 32, 64),
      tokens: upTo(6),
      seed: seeds,
    })
    const property = fc.asyncProperty(shapes, async ({ keyHeads, share, keyDim, valueDim, tokens, seed }) => {
      const random = seededRandom(seed)
      const config = linearConfig(keyHeads, keyHeads * share, keyDim, valueDim)
      const { linearConvDim: channels, linearValueHeads: heads } = config
      const columns = linearColumns(config)
      const inputs = randomFloats(random, tokens * columns.stride, 2)
      const taps = randomFloats(random, channels * 4)
      const aLog = randomFloats(random, heads)
      const dtBias = randomFloats(random, heads)
      const norm = randomFloats(random, valueDim)
      const conv = randomFloats(random, 3 * channels)
      const recurrent = randomFloats(random, heads * valueDim * keyDim, 0.2)
      const want = linearReference(config, inputs, { taps, aLog, dtBias, norm }, { conv, recurrent })

      const { states, space, info } = await rooms(arena, config, tokens)
      const [stateIn, stateOut] = [states.take(), states.take()]
      const quads = stateQuads(config) * 4
      arena.device.queue.writeBuffer(states.buffer(0), stateIn * quads * 4, stateFloats(config, conv, recurrent))
      const poisonState = () =>
        arena.device.queue.writeBuffer(states.buffer(0), stateOut * quads * 4, new Float32Array(quads).fill(Number.NaN))
      info.write([{ tokens: new Array(tokens).fill(0), position: 5, pages: [0], stateIn, stateOut }])
      const pairs = Float32Array.from({ length: 2 * heads }, (_, i) =>
        i % 2 === 0 ? -Math.exp(aLog[i >> 1]) : dtBias[i >> 1],
      )
      const [mixerIn, mixed, convolved] = [
        arena.put(inputs),
        arena.poisoned(tokens * heads * valueDim),
        arena.poisoned(tokens * channels),
      ]
      const { tokenInfo, runInfo } = space
      poisonState()
      const gpu = arena.exact
      const convBuffers = { taps: arena.put(taps), tokenInfo, runInfo, inputs: mixerIn, out: convolved }
      await arena.run(await conv1dOp(gpu, config, convBuffers, states, 0), { tokens })
      const delta = { gates: arena.put(pairs), runInfo, inputs: mixerIn, convolved, out: mixed }
      await arena.run(await gatedDeltaOp(gpu, config, delta, states, 0), { tokens })
      const halves = arena.poisoned(want.out.length / 2)
      await arena.run(await rmsNormGatedOp(gpu, config, arena.put(norm), mixerIn, mixed, halves), { tokens })
      expectClose(fromHalves(await arena.words(halves, want.out.length / 2)), want.out, HALVES, 'half floats')
      await arena.run(await rmsNormGatedOp(gpu, config, arena.put(norm), mixerIn, mixed), { tokens })
      expectClose(await arena.floats(mixed, want.out.length), want.out, KERNEL, 'prompt')
      const check = async (what: string, state: { conv: Float32Array; recurrent: Float32Array }) => {
        const all = await arena.floats(states.buffer(0), (stateOut + 1) * quads)
        const got = all.subarray(stateOut * quads)
        const expected = stateFloats(config, state.conv, state.recurrent)
        // The fourth place of a conv window is nobody's.
        const used = (values: Float32Array) => values.filter((_, i) => i >= channels * 4 || i % 4 !== 3)
        expectClose(used(got), used(expected), KERNEL, what)
      }
      await check('state after a prompt', want)

      const constants = new Float32Array(4 * (channels + heads + valueDim))
      constants.set(taps)
      for (let head = 0; head < heads; head++) {
        constants.set(pairs.subarray(2 * head, 2 * head + 2), 4 * (channels + head))
      }
      for (const [i, value] of norm.entries()) constants[4 * (channels + heads + i)] = value
      const first = inputs.slice(0, columns.stride)
      const one = linearReference(config, first, { taps, aLog, dtBias, norm }, { conv, recurrent })
      info.write([{ tokens: [0], position: 5, pages: [0], stateIn, stateOut }])
      poisonState()
      const out = arena.poisoned(heads * valueDim)
      const { status } = space
      const step = { constants: arena.put(constants), tokenInfo, runInfo, status, inputs: arena.put(first), out }
      await arena.run(await linearStepOp(gpu, config, step, states, 0))
      expectClose(await arena.floats(out, one.out.length), one.out, KERNEL, 'one token')
      await check('state after a token', one)
    })
    // As many keys as fit into a workgroup's memory; as many threads as there can be, and more values to bring than threads.
    const [keys, values] = [
      { keyHeads: 1, share: 2, keyDim: 256, valueDim: 16, tokens: 6, seed: 3 },
      { keyHeads: 1, share: 1, keyDim: 16, valueDim: 256, tokens: 5, seed: 4 },
    ]
    await fc.assert(property, { numRuns: 5, examples: [[keys], [values]] })
  })

  test('attention: norms, RoPE, pages; by prompts and by single tokens, split over the sequence', async () => {
    const shapes = fc.record({
      kvHeads: upTo(3),
      share: upTo(5),
      headDim: fc.constantFrom(16, 32, 64),
      past: fc.constantFrom(0, 1, 63, 64, 150),
      tokens: upTo(4),
      splits: fc.constantFrom(2, 5),
      seed: seeds,
    })
    const property = fc.asyncProperty(shapes, async ({ kvHeads, share, headDim, past, tokens, splits, seed }) => {
      const random = seededRandom(seed)
      const config = attentionConfig(kvHeads * share, kvHeads, headDim)
      const { stride } = attentionColumns(config, gatedAttention)
      const length = past + tokens
      const inputs = randomFloats(random, length * stride, 2)
      const qNorm = randomFloats(random, headDim).map(value => value + 1.5)
      const kNorm = randomFloats(random, headDim).map(value => value + 1.5)
      const want = attentionReference(config, inputs, qNorm, kNorm).subarray(past * config.numHeads * headDim)

      const { kv, space, info } = await rooms(arena, config, length)
      const pages = Array.from({ length: Math.ceil(length / PAGE_TOKENS) }, () => kv.pages.allocate()).reverse()
      await kv.reserve(0, pages.length)
      const norms = new Float32Array(2 * headDim)
      norms.set(qNorm)
      norms.set(kNorm, headDim)
      const gpu = arena.exact
      const { step, tokenInfo, angles } = space
      const normBuffer = arena.put(norms)
      const size = length * config.numHeads * headDim
      const feed = async (from: number, count: number): Promise<{ mixerIn: GPUBuffer; queries: GPUBuffer }> => {
        const run: PlannedRun = { tokens: new Array(count).fill(0), position: from, pages, stateIn: 0, stateOut: 0 }
        info.write([run])
        const mixerIn = arena.put(inputs.slice(from * stride, (from + count) * stride))
        const queries = arena.poisoned(size)
        const buffers = { norms: normBuffer, tokenInfo, angles, inputs: mixerIn, queries }
        await arena.run(await attentionInputOp(gpu, config, { ...gatedAttention, rope: config.rope }, buffers, kv, 0), {
          tokens: count,
        })
        return { mixerIn, queries }
      }
      if (past > 0) await feed(0, past)
      const { mixerIn, queries } = await feed(past, tokens)
      const whole = arena.poisoned(want.length)
      const buffers = { step, tokenInfo, inputs: mixerIn, queries, sinks: null, out: whole }
      await arena.run(await attentionOp(gpu, config, gatedAttention, buffers, kv, 0), { tokens })
      expectClose(await arena.floats(whole, want.length), want, KERNEL, 'a prompt')

      // The same tokens by the kernel of single ones, all at once and then one after the other: the same bits, in pages too.
      const shape = { ...gatedAttention, rope: config.rope }
      const attend = async (first: number, count: number): Promise<Float32Array> => {
        const run = { tokens: new Array(count).fill(0), position: past + first, pages, stateIn: 0, stateOut: 0 }
        info.write([run])
        const own = inputs.slice((past + first) * stride, (past + first + count) * stride)
        const parts = arena.poisoned(attentionPartsBytes(config, count, splits) / 4)
        const out = arena.poisoned(count * config.numHeads * headDim)
        const given = { norms: normBuffer, tokenInfo, angles, inputs: arena.put(own), parts, sinks: null, out }
        const how = { splits, longestRun: tokens }
        await arena.run(await attentionStepOp(gpu, config, shape, given, kv, 0, how), { tokens: count })
        await arena.run(await attentionReduceOp(gpu, config, shape, given, splits), { tokens: count })
        return arena.floats(out, count * config.numHeads * headDim)
      }
      const rowBytes = kvHeads * headDim * 4
      const places = Array.from({ length: tokens }, (_, t) => {
        const position = past + t
        const page = pages[Math.floor(position / PAGE_TOKENS)]
        const row = page * 2 * PAGE_TOKENS + (position % PAGE_TOKENS)
        return [row * rowBytes, (row + PAGE_TOKENS) * rowBytes] // key, value
      }).flat()
      const pageRows = async () => {
        const all = await arena.floats(kv.buffer(0), kv.buffer(0).size / 4)
        return places.map(from => all.slice(from / 4, (from + rowBytes) / 4))
      }
      const written = await pageRows()
      const nobodys = new Float32Array(rowBytes / 4).fill(Number.NaN)
      for (const from of places) arena.device.queue.writeBuffer(kv.buffer(0), from, nobodys)
      const together = await attend(0, tokens)
      expectClose(together, want, KERNEL, 'tokens of a run')
      const rows = await pageRows()
      for (const [i, row] of rows.entries()) expectClose(row, written[i], KERNEL, 'keys and values')
      for (let t = 0; t < tokens; t++) {
        const width = config.numHeads * headDim
        expectSameBits(await attend(t, 1), together.slice(t * width, (t + 1) * width))
      }
      for (const [i, row] of (await pageRows()).entries()) expectSameBits(row, rows[i])
    })
    // More quads than threads, and of a head and its keys as many as fit into the least of workgroup memories.
    const wide = [516, 1028].map(headDim => ({
      kvHeads: 1,
      share: 2,
      headDim,
      past: 63,
      tokens: 2,
      splits: 2,
      seed: 5,
    }))
    await fc.assert(property, { numRuns: 6, examples: wide.map(shape => [shape]) })
  })
})

test('shapes that a workgroup has no room for are refused by name, and who can run them is told', async () => {
  const arena = await GpuArena.open()
  try {
    const gpu = arena.exact
    const refused = async (name: string, config: ModelConfig, make: (from: Rooms) => Promise<unknown>) => {
      const error = await make(await rooms(arena, config, 1)).catch(error => error)
      expect(error, name).toMatchObject({ code: 'BACKEND_UNAVAILABLE' })
      expect((error as Error).message).toContain(`cannot run kernel ${name} for this model, backend wasm can: `)
    }
    const buffer = arena.put(new Uint32Array(4))
    const linear = { constants: buffer, gates: buffer, convolved: buffer, inputs: buffer, out: buffer }
    // Four values more than there may be threads; more keys, queries and experts than there is memory.
    await refused('gatedDeltaStep', linearConfig(1, 1, 16, 260), ({ space, states }) =>
      linearStepOp(gpu, linearConfig(1, 1, 16, 260), { ...space, ...linear }, states, 0),
    )
    await refused('gatedDelta', linearConfig(1, 1, 4096, 16), ({ space, states }) =>
      gatedDeltaOp(gpu, linearConfig(1, 1, 4096, 16), { ...space, ...linear }, states, 0),
    )
    await refused('attention', attentionConfig(1, 1, 16384), ({ space, kv }) => {
      const buffers = { ...space, inputs: buffer, sinks: null, out: buffer }
      return attentionOp(gpu, attentionConfig(1, 1, 16384), gatedAttention, buffers, kv, 0)
    })
    const shape = { experts: 5000, k: 1, maxTokens: 1, logitsStride: 5001, pairTile: 32 }
    await refused('groupTokens', attentionConfig(1, 1, 16), () =>
      groupTokensOp(gpu, shape, buffer, buffer, buffer, buffer, 0),
    )
  } finally {
    await arena.close()
  }
})

type Rooms = Awaited<ReturnType<typeof rooms>>

async function rooms(arena: GpuArena, config: ModelConfig, tokens: number) {
  const { device } = arena
  const states = new StatePool(device, config, [0], largest)
  const kv = new KvPool(device, config, [0], largest)
  await states.reserve(4)
  await kv.reserve(8, 8)
  const shape = { experts: 1, k: 1, maxTokens: tokens, logitsStride: 2, pairTile: 32 }
  const space = createWorkspace(arena.exact, config, shape)
  return { states, kv, space, info: new StepInfo(device, config, space, kv) }
}

// Kernels look at a few fields each.
function linearConfig(keyHeads: number, valueHeads: number, keyDim: number, valueDim: number): ModelConfig {
  return {
    ...attentionConfig(1, 1, 16),
    linearKeyHeads: keyHeads,
    linearValueHeads: valueHeads,
    linearKeyDim: keyDim,
    linearValueDim: valueDim,
    linearConvDim: 2 * keyHeads * keyDim + valueHeads * valueDim,
  }
}

function attentionConfig(numHeads: number, numKvHeads: number, headDim: number): ModelConfig {
  const shape = {
    hiddenSize: 32,
    moeIntermediateSize: 32,
    sharedExpertIntermediateSize: 32,
    numLayers: 1,
    numExperts: 1,
    moeLayers: [0],
    expertLayers: [0],
    draftHead: null,
  }
  const linear = { linearKeyHeads: 1, linearValueHeads: 1, linearKeyDim: 16, linearValueDim: 16, linearConvDim: 48 }
  const rope = { dims: headDim / 2, theta: 1e7, yarn: null }
  const attention = { numHeads, numKvHeads, headDim, rope, rmsNormEps: 1e-6 }
  const layers = [gatedAttention, { kind: 'linear_attention' }].map(mixer => ({ mixer, feedForward: moe }))
  return { ...shape, ...linear, ...attention, layers } as unknown as ModelConfig
}

function columnsOf(x: Float32Array, width: number, start: number, size: number): Float32Array {
  return Float32Array.from({ length: (x.length / width) * size }, (_, i) => {
    return x[Math.floor(i / size) * width + start + (i % size)]
  })
}

function linearReference(
  config: ModelConfig,
  inputs: Float32Array,
  weights: { taps: Float32Array; aLog: Float32Array; dtBias: Float32Array; norm: Float32Array },
  state: { conv: Float32Array; recurrent: Float32Array },
): { out: Float32Array; conv: Float32Array; recurrent: Float32Array } {
  const { linearConvDim, linearKeyHeads, linearKeyDim, linearValueHeads, linearValueDim } = config
  const { stride, z, b, a } = linearColumns(config)
  const keySize = linearKeyHeads * linearKeyDim
  const valueSize = linearValueHeads * linearValueDim
  const mixed = conv1d(columnsOf(inputs, stride, 0, linearConvDim), state.conv, weights.taps)
  const gates = deltaGates(
    columnsOf(inputs, stride, a, linearValueHeads),
    columnsOf(inputs, stride, b, linearValueHeads),
    weights.aLog,
    weights.dtBias,
  )
  const recurrent = state.recurrent.slice()
  const out = gatedDelta(
    {
      q: l2Norm(columnsOf(mixed.out, linearConvDim, 0, keySize), linearKeyDim, linearKeyDim ** -0.5),
      k: l2Norm(columnsOf(mixed.out, linearConvDim, keySize, keySize), linearKeyDim),
      v: columnsOf(mixed.out, linearConvDim, 2 * keySize, valueSize),
      ...gates,
    },
    recurrent,
    { keyHeads: linearKeyHeads, valueHeads: linearValueHeads, keyDim: linearKeyDim, valueDim: linearValueDim },
  )
  const gate = columnsOf(inputs, stride, z, valueSize)
  return { out: rmsNormGated(out, gate, weights.norm, config.rmsNormEps), conv: mixed.state, recurrent }
}

/** A state slot: per channel the last three inputs and a hole, then the recurrent state as the kernels keep it. */
function stateFloats(config: ModelConfig, conv: Float32Array, recurrent: Float32Array): Float32Array {
  const { linearConvDim: channels } = config
  const values = new Float32Array(stateQuads(config) * 4)
  for (let channel = 0; channel < channels; channel++) {
    for (let i = 0; i < 3; i++) values[channel * 4 + i] = conv[i * channels + channel]
  }
  values.set(toKernelOrder(config, recurrent), channels * 4)
  return values
}

/** [heads, valueDim, keyDim] -> [heads, keyDim / 4, valueDim, 4]: neighbouring rows' quads lie side by side. */
function toKernelOrder(config: ModelConfig, recurrent: Float32Array): Float32Array {
  const { linearValueHeads: heads, linearValueDim: rows, linearKeyDim: cols } = config
  const out = new Float32Array(recurrent.length)
  for (let head = 0; head < heads; head++) {
    for (let row = 0; row < rows; row++) {
      for (let col = 0; col < cols; col++) {
        const at = ((head * (cols / 4) + (col >> 2)) * rows + row) * 4 + (col & 3)
        out[at] = recurrent[(head * rows + row) * cols + col]
      }
    }
  }
  return out
}

function attentionReference(
  config: ModelConfig,
  inputs: Float32Array,
  qNorm: Float32Array,
  kNorm: Float32Array,
): Float32Array {
  const { numHeads: heads, numKvHeads: kvHeads, headDim, rmsNormEps } = config
  const angles = ropeFrequencies(config.rope)
  const { stride, k, v } = attentionColumns(config, gatedAttention)
  const length = inputs.length / stride
  const pairs = columnsOf(inputs, stride, 0, heads * 2 * headDim)
  const queries = rmsNorm(columnsOf(pairs, 2 * headDim, 0, headDim), qNorm, rmsNormEps)
  const gates = columnsOf(pairs, 2 * headDim, headDim, headDim)
  const keys = rmsNorm(columnsOf(inputs, stride, k, kvHeads * headDim), kNorm, rmsNormEps)
  const values = columnsOf(inputs, stride, v, kvHeads * headDim)
  const out = new Float32Array(length * heads * headDim)
  for (let t = 0; t < length; t++) {
    const query = queries.subarray(t * heads * headDim, (t + 1) * heads * headDim)
    rope(query, t, headDim, angles)
    rope(keys.subarray(t * kvHeads * headDim, (t + 1) * kvHeads * headDim), t, headDim, angles)
    out.set(attention(query, [keys], [values], length, t + 1, { heads, kvHeads, headDim }), t * heads * headDim)
  }
  return sigmoidGate(out, gates)
}
