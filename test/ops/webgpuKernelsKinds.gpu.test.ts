// The WGSL kernels of layer kinds that not every family has, against plain code on random shapes: routers that score, attention
// with windows and sinks, biases, clamped activations, shared experts of all sorts. Outputs begin as NaN.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { PAGE_TOKENS } from '#moeflux/backends/kvPages.js'
import { StepInfo } from '#moeflux/backends/webgpu/memory/stepInfo.js'
import { createWorkspace, type Workspace } from '#moeflux/backends/webgpu/memory/workspace.js'
import { activationBuffers } from '#moeflux/gpu/memory/activationBuffers.js'
import { KvPool } from '#moeflux/gpu/memory/kvPool.js'
import type { ModelConfig } from '#moeflux/model/config.js'
import type { Activation, AttentionShape, MoeShape, RouterShape } from '#moeflux/model/layers.js'
import { ropeFrequencies } from '#moeflux/model/ropeFrequencies.js'
import { swiGluOp } from '#moeflux/ops/activation/swiGlu.gpu.js'
import { attentionOp } from '#moeflux/ops/attention/attention.gpu.js'
import { attentionInputOp } from '#moeflux/ops/attention/attentionInput.gpu.js'
import { attentionReduceOp } from '#moeflux/ops/attention/attentionReduce.gpu.js'
import { attentionColumns, attentionPartsBytes } from '#moeflux/ops/attention/attentionShape.gpu.js'
import { attentionStepOp } from '#moeflux/ops/attention/attentionStep.gpu.js'
import { groupedMatMulOp, matMulOp } from '#moeflux/ops/matmul/matMul.gpu.js'
import { expertMatVecOp, matVecOp } from '#moeflux/ops/matmul/matVec.gpu.js'
import { quantizeOp } from '#moeflux/ops/matmul/quantize.gpu.js'
import { matVec } from '#moeflux/ops/matmul/reference.js'
import type { QuantizedWeights } from '#moeflux/ops/matmul/storedWeights.js'
import { combineOp } from '#moeflux/ops/moe/combine.gpu.js'
import { expertDownOp } from '#moeflux/ops/moe/expertDown.gpu.js'
import { groupsBytes, groupTokensOp, maxTiles, pairsAt } from '#moeflux/ops/moe/groupTokens.gpu.js'
import { logitsStride, routerOp } from '#moeflux/ops/router/router.gpu.js'
import { GpuArena, packMatrix } from '../support/gpu/gpuArena.js'
import { expectClose, expectSameBits, KERNEL } from '../support/ops/bands.js'
import { randomFloats, randomQuantized, seededRandom } from '../support/random.js'

const seeds = fc.integer({ min: 1, max: 2 ** 31 })
const upTo = (max: number) => fc.integer({ min: 1, max })
const FAST = { cosine: 0.9995, maxDifference: 0.05 } // int8 activations
const clamped: Activation = { kind: 'clampedSwiglu', limit: 7, alpha: 1.702 }
const activations = fc.constantFrom<Activation>({ kind: 'silu' }, clamped, { ...clamped, limit: 2.5 })

const devices = [
  { name: 'subgroups', options: {} },
  { name: 'portable', options: { subgroups: false, packedDot: false, defaultLimits: true } },
]

describe.each(devices)('kernels of other kinds, $name', ({ options }) => {
  let arena: GpuArena
  beforeAll(async () => {
    arena = await GpuArena.open(options)
  })
  afterAll(() => arena.close())

  test('routers: scores, selection biases, groups, weights as they are, scales; guesses by the same rule', async () => {
    const shapes = fc.record({
      groupExperts: upTo(9),
      groups: fc.option(upTo(5)),
      ahead: fc.nat(2),
      tokens: upTo(3),
      seed: seeds,
      score: fc.constantFrom('softmax' as const, 'sigmoid' as const),
      selectionBias: fc.boolean(),
      renormalize: fc.boolean(),
      scale: fc.constantFrom(1, 2.5),
      shared: fc.constantFrom<MoeShape['shared']>('none', 'gated', 'plain'),
    })
    const property = fc.asyncProperty(shapes, async given => {
      const { groupExperts, groups: count, ahead, tokens, seed, shared } = given
      const random = seededRandom(seed)
      const groups = count === null ? null : { count, used: 1 + Math.floor(random() * count) }
      const experts = groupExperts * (count ?? 1)
      const k = 1 + Math.floor(random() * Math.min(6, groupExperts * (groups?.used ?? 1)))
      const { score, selectionBias, renormalize, scale } = given
      const router: RouterShape = {
        score,
        order: 'scoreThenTop',
        bias: false,
        selectionBias,
        groups,
        renormalize,
        scale,
      }
      const shape = { experts, k, maxTokens: 4, logitsStride: logitsStride(experts, ahead), pairTile: 32 }
      const logits = randomFloats(random, tokens * shape.logitsStride, 4)
      const bias = randomFloats(random, (1 + ahead) * experts, 0.5)
      const layers = 2
      const choice = arena.poisoned((layers + ahead + 1) * 4 * k)
      const hasSlot = shared !== 'none'
      const ranks = k + (hasSlot ? 1 : 0)
      const mixing = arena.poisoned(tokens * ranks * 2)
      const buffers = {
        logits: arena.put(logits),
        slotTable: arena.put(Uint32Array.from({ length: layers * experts }, (_, i) => i + 5)),
        choice,
        mixing,
        status: arena.put(new Uint32Array(4)),
        selectionBias: selectionBias ? arena.put(bias) : null,
      }
      const decode = { sharedSlot: hasSlot ? 3 : null, ahead, layers, spareSlot: 0, leftRow: layers + ahead }
      const run = async (from: typeof buffers) =>
        arena.run(await routerOp(arena.exact, shape, { router, shared }, from, 1, decode), { tokens })
      await run(buffers)
      const chosen = await arena.words(choice, (layers + ahead) * 4 * k)
      const mixed = await arena.words(mixing, tokens * ranks * 2)
      const weights = new Float32Array(mixed.buffer)
      for (let t = 0; t < tokens; t++) {
        for (let i = 0; i <= ahead; i++) {
          const at = t * shape.logitsStride + (i > 0 ? experts + 1 + (i - 1) * experts : 0)
          const want = route(router, logits.subarray(at, at + experts), bias.subarray(i * experts), k)
          const row = ((i > 0 ? layers + i - 1 : 1) * 4 + t) * k
          expect([...chosen.subarray(row, row + k)], `choice ${i}`).toEqual(want.map(({ expert }) => expert))
          if (i > 0) continue
          for (const [rank, { expert, weight }] of want.entries()) {
            expect(mixed[(t * ranks + rank) * 2], 'slot').toBe(experts + expert + 5)
            expect(Math.abs(weights[(t * ranks + rank) * 2 + 1] - weight)).toBeLessThan(1e-5)
          }
        }
        if (!hasSlot) continue
        const gate = shared === 'plain' ? 1 : sigmoid(logits[t * shape.logitsStride + experts])
        expect(mixed[(t * ranks + k) * 2]).toBe(3)
        expect(weights[(t * ranks + k) * 2 + 1]).toBeCloseTo(gate, 5)
      }

      // What is not finite does not vanish, in a logit or in a bias.
      if (selectionBias && random() < 0.5) bias[Math.floor(random() * experts)] = Number.NaN
      else logits[Math.floor(random() * experts)] = Number.NEGATIVE_INFINITY
      await run({ ...buffers, logits: arena.put(logits), selectionBias: selectionBias ? arena.put(bias) : null })
      const spoiled = await arena.floats(mixing, k * 2)
      for (let rank = 0; rank < k; rank++) expect(spoiled[rank * 2 + 1]).toBeNaN()
    })
    await fc.assert(property, { numRuns: 8 })
  })

  test('attention: with and without gate, norms, window, sinks, YaRN; whole and split', async () => {
    const shapes = fc.record({
      ...{ outputGate: fc.boolean(), qkNorm: fc.boolean(), sinks: fc.boolean(), isWhole: fc.boolean() },
      window: fc.constantFrom(null, 1, 3, 32, 70),
      yarn: fc.boolean(),
      share: upTo(4),
      past: fc.constantFrom(0, 5, 63, 150),
      seed: seeds,
    })
    const property = fc.asyncProperty(shapes, async ({ share, past, seed, isWhole, yarn, ...kinds }) => {
      const random = seededRandom(seed)
      const [tokens, splits, headDim] = [3, 3, 32]
      const context = { factor: 8, betaFast: 32, betaSlow: 1, originalContext: 64, truncate: true }
      const stretched = { ...context, attentionFactor: 1.2 }
      const rope = { dims: isWhole ? headDim : 8, theta: 1e4, yarn: yarn ? stretched : null }
      const shape: AttentionShape = { kind: 'full_attention', qkvBias: false, outputBias: false, rope, ...kinds }
      const config = attentionConfig(2 * share, 2, headDim, shape)
      const heads = config.numHeads
      const { stride } = attentionColumns(config, shape)
      const length = past + tokens
      const inputs = randomFloats(random, length * stride, 2)
      const norms = randomFloats(random, 2 * headDim).map(value => value + 1.5)
      const sinks = randomFloats(random, heads, 3).map(value => value + 3)
      const want = attend(config, shape, inputs, norms, sinks).subarray(past * heads * headDim)

      const { device } = arena
      const kv = new KvPool(device, config, [0], 128 * 2 ** 20)
      await kv.reserve(8, 8)
      const space = createWorkspace(arena.exact, config, {
        experts: 1,
        k: 1,
        maxTokens: length,
        logitsStride: 2,
        pairTile: 32,
      })
      const pages = Array.from({ length: Math.ceil(length / PAGE_TOKENS) }, () => kv.pages.allocate()).reverse()
      const { step, tokenInfo, angles } = space
      const queries = arena.poisoned(length * heads * headDim)
      const feed = async (first: number, count: number): Promise<GPUBuffer> => {
        const run = { tokens: new Array(count).fill(0), position: first, pages, stateIn: 0, stateOut: 0 }
        new StepInfo(device, config, space, kv).write([run])
        const mixerIn = arena.put(inputs.slice(first * stride, (first + count) * stride))
        const buffers = { norms: shape.qkNorm ? arena.put(norms) : null, tokenInfo, angles, inputs: mixerIn, queries }
        await arena.run(await attentionInputOp(arena.exact, config, shape, buffers, kv, 0), { tokens: count })
        return mixerIn
      }
      if (past > 0) await feed(0, past)
      const mixerIn = await feed(past, tokens)
      const parts = arena.poisoned(attentionPartsBytes(config, tokens, splits) / 4)
      const [whole, split] = [arena.poisoned(want.length), arena.poisoned(want.length)]
      const sinkBuffer = shape.sinks ? arena.put(sinks) : null
      const buffers = { step, tokenInfo, inputs: mixerIn, queries, sinks: sinkBuffer, out: whole }
      await arena.run(await attentionOp(arena.exact, config, shape, buffers, kv, 0), { tokens })
      expectClose(await arena.floats(whole, want.length), want, KERNEL, 'whole')
      const normBuffer = shape.qkNorm ? arena.put(norms) : null
      const given = { norms: normBuffer, tokenInfo, angles, inputs: mixerIn, parts, sinks: sinkBuffer, out: split }
      const how = { splits, longestRun: tokens }
      await arena.run(await attentionStepOp(arena.exact, config, shape, given, kv, 0, how), { tokens })
      await arena.run(await attentionReduceOp(arena.exact, config, shape, given, splits), { tokens })
      expectClose(await arena.floats(split, want.length), want, KERNEL, 'split')
    })
    // As gpt_oss has them, and what it has not.
    const oss = { outputGate: false, qkNorm: false, sinks: true, isWhole: true, window: 3, yarn: true }
    const other = { outputGate: true, qkNorm: true, sinks: false, isWhole: false, window: null, yarn: false }
    const sizes = { share: 2, past: 63, seed: 1 }
    const drawn = [oss, { ...oss, window: null }, other]
    const examples = drawn.map((kinds): [typeof kinds & typeof sizes] => [{ ...kinds, ...sizes }])
    await fc.assert(property, { numRuns: 5, examples })
  })

  test('a bias by column, for one token and for many', async () => {
    const property = fc.asyncProperty(upTo(70), fc.boolean(), seeds, async (rows, fast, seed) => {
      const random = seededRandom(seed)
      const gpu = fast ? arena.fast : arena.exact
      const [tokens, cols, stride] = [3, 64, rows + 2]
      const weights = randomQuantized(random, rows, cols, 4, 32)
      const x = randomFloats(random, tokens * cols, 2)
      const biases = randomFloats(random, stride, 3)
      const bias = arena.put(biases)
      const part = arena.matrix(weights, 1)
      const input = activationBuffers(gpu, tokens, cols, 'x')
      arena.device.queue.writeBuffer(input.values, 0, x)
      const [many, one] = [arena.poisoned(tokens * stride), arena.poisoned(tokens * stride)]
      const common = { outStride: stride, label: 'test', bias }
      const product = { step: arena.step(tokens), maxTokens: tokens, ...common }
      await arena.run(await matMulOp(gpu, [part], input, many, product), { tokens })
      const status = arena.put(new Uint32Array(4))
      await arena.run(await matVecOp(gpu, [part], arena.put(x), one, { status, ...common }), { tokens })
      const want = rowsOf(x, cols).flatMap(row => [...matVec(weights, row)].map((value, i) => value + biases[1 + i]))
      for (const out of [many, one]) {
        const got = rowsOf(await arena.floats(out, tokens * stride), stride)
        expectClose(
          got.flatMap(row => [...row.subarray(1, 1 + rows)]),
          want,
          fast ? FAST : KERNEL,
        )
        expect(got.every(row => Number.isNaN(row[0]) && Number.isNaN(row[rows + 1]))).toBe(true)
      }
    })
    await fc.assert(property, { numRuns: 4 })
  })

  test('experts with biases in their slots and any activation, beside shared experts of every kind', async () => {
    const shapes = fc.record({
      bits: fc.constantFrom(2 as const, 4 as const, 8 as const),
      biasType: fc.constantFrom(null, 'F32' as const, 'BF16' as const),
      activation: activations,
      shared: fc.constantFrom<MoeShape['shared']>('none', 'gated', 'plain'),
      k: upTo(3),
      width: fc.constant<number>(32),
      fast: fc.boolean(),
      seed: seeds,
    })
    const property = fc.asyncProperty(shapes, async ({ bits, biasType, activation, shared, k, width, fast, seed }) => {
      const random = seededRandom(seed)
      const gpu = fast ? arena.fast : arena.exact
      const [tokens, hidden, experts] = [3, 64, 4]
      const made = Array.from({ length: experts }, () => {
        const [gate, up] = [0, 0].map(() => randomQuantized(random, width, hidden, bits, 32))
        const [gateBias, upBias] = [0, 0].map(() => randomFloats(random, width, 2).map(toBf16))
        const down = randomQuantized(random, hidden, width, 4, 32)
        return { gate, up, down, gateBias, upBias, downBias: randomFloats(random, hidden, 2).map(toBf16) }
      })
      const { layout, bytes } = paveSlots(made, biasType)
      const pool = { generation: 0, buffer: arena.put(bytes) }
      const pairTile = seed % 2 === 0 ? 16 : 32
      const shape = { experts, k, maxTokens: tokens, logitsStride: experts + 1, pairTile }
      const x = randomFloats(random, tokens * hidden, 8)
      const chosen = Array.from({ length: tokens }, () => shuffled(random, experts).slice(0, k))
      const weights = randomFloats(random, tokens * k).map(value => value + 1.5)
      const mixing = new Uint32Array(tokens * k * 2)
      const mixed = new Float32Array(mixing.buffer)
      for (const [i, slot] of chosen.flat().entries()) {
        mixing[2 * i] = slot
        mixed[2 * i + 1] = weights[i]
      }
      const logits = randomFloats(random, tokens * shape.logitsStride)
      const sharedRows = randomFloats(random, tokens * hidden)
      const want = new Float64Array(tokens * hidden)
      for (let t = 0; t < tokens; t++) {
        const row = x.subarray(t * hidden, (t + 1) * hidden)
        for (const [rank, index] of chosen[t].entries()) {
          const out = expert(made[index], row, biasType !== null, activation)
          for (let i = 0; i < hidden; i++) want[t * hidden + i] += weights[t * k + rank] * out[i]
        }
        const gate = shared === 'gated' ? sigmoid(logits[t * shape.logitsStride + experts]) : 1
        for (let i = 0; i < hidden && shared !== 'none'; i++) {
          want[t * hidden + i] += gate * sharedRows[t * hidden + i]
        }
      }
      const status = arena.put(new Uint32Array(4))
      const expertGateUp = arena.poisoned(tokens * k * 2 * width)
      const from = { status, mixing: arena.put(mixing), logits: arena.put(logits), sharedOut: arena.put(sharedRows) }
      const segments = [
        { ...layout.gate, out: 0 },
        { ...layout.up, out: width },
      ]
      const { format, cols } = layout.gate
      const vec = { status, outStride: 2 * width, label: 'test' }
      const { mixing: mix } = from
      const matrices = { pool, slotStride: layout.stride, format, cols, segments }
      const product = { ...matrices, x: arena.put(x), y: expertGateUp, mixing: mix, k, own: null }
      const gateUpOp = await expertMatVecOp(gpu, product, vec)
      await arena.run(gateUpOp, { tokens })
      const before = randomFloats(random, tokens * hidden)
      const space = { ...from, shape, expertGateUp, hidden: arena.put(before) } as unknown as Workspace
      const downOp = await expertDownOp(gpu, layout, pool, space, { shared, activation }, false)
      await arena.run(downOp, { tokens })
      const decoded = await arena.floats(space.hidden, tokens * hidden)
      expectClose(
        decoded.map((value, i) => value - before[i]),
        want,
        fast ? FAST : KERNEL,
        'one token',
      )

      // After a miss slots may be anything: nothing is read from there (a gigabyte away, where there is no memory), nothing written.
      const wild = Math.floor(2 ** 30 / layout.stride)
      arena.device.queue.writeBuffer(
        mix,
        0,
        mixing.map((word, i) => (i % 2 === 0 ? wild : word)),
      )
      arena.device.queue.writeBuffer(status, 0, Uint32Array.of(1))
      for (const op of [gateUpOp, downOp]) await arena.run(op, { tokens })
      expectSameBits(await arena.floats(space.hidden, tokens * hidden), decoded, 'after a miss')
      arena.device.queue.writeBuffer(mix, 0, mixing)

      // The same by the kernels of prompts.
      const step = arena.step(tokens)
      const groups = arena.poisoned(groupsBytes(shape) / 4)
      const table = arena.put(Uint32Array.from({ length: experts }, (_, i) => i))
      const input = activationBuffers(gpu, tokens, hidden, 'x')
      arena.device.queue.writeBuffer(input.values, 0, x)
      const [gateUp, rows] = [arena.poisoned(tokens * k * 2 * width), arena.poisoned(tokens * k * hidden)]
      const act = activationBuffers(gpu, tokens * k, width, 'act')
      const common = {
        ...{ step, groups, pairsAt: pairsAt(shape), pairTile, slotStride: layout.stride, label: 'test' },
        maxTiles: (count: number) => maxTiles(shape, count),
      }
      const first = { ...common, outStride: 2 * width, pairsPerRow: k }
      const second = { ...common, outStride: hidden, pairsPerRow: 1 }
      const { down } = layout
      const ops = [
        await groupTokensOp(gpu, shape, step, table, arena.put(Uint32Array.from(chosen.flat())), groups, 0),
        ...(fast ? [await quantizeOp(gpu, input, hidden, bits)] : []),
        await groupedMatMulOp(gpu, pool, format, cols, segments, input, gateUp, first),
        await (fast
          ? quantizeOp(gpu, act, width, down.format.bits, k, { gateUp, activation })
          : swiGluOp(gpu, gateUp, act.values, width, k, activation)),
        await groupedMatMulOp(gpu, pool, down.format, down.cols, [{ ...down, out: 0 }], act, rows, second),
      ]
      const nobodys = arena.put(new Uint32Array(tokens * k).fill(0x7fc5a5a5))
      await arena.run(await groupTokensOp(gpu, shape, step, table, nobodys, groups, 0), { tokens })
      expect((await arena.words(groups, 1))[0], 'an expert that is none is the last').toBe(1)
      for (const op of ops) await arena.run(op, { tokens })
      const out = arena.poisoned(tokens * hidden)
      const sums = { ...from, expertRows: rows, sharedRows: from.sharedOut, out }
      await arena.run(await combineOp(gpu, shape, shared, sums, hidden), { tokens })
      expectClose(await arena.floats(out, tokens * hidden), want, fast ? FAST : KERNEL, 'many tokens')
    })
    // The columns of a token's experts are one row: longer than what a workgroup keeps of it.
    const wide = { bits: 4 as const, biasType: null, activation: clamped, shared: 'gated' as const, k: 3, seed: 6 }
    const examples = [
      { ...wide, fast: false, width: 2048 / 2 - 32 },
      { ...wide, fast: true, width: 8192 / 2 - 32 },
    ]
    await fc.assert(property, { numRuns: 5, examples: examples.map(shape => [shape]) })
  })

  test('a clamp hides nothing that is not finite', async () => {
    for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      const pairs = Float32Array.of(1, wrong, 3, 100, 9, 2, wrong, -100)
      const out = arena.poisoned(4)
      await arena.run(await swiGluOp(arena.exact, arena.put(pairs), out, 4, 1, clamped))
      const got = await arena.floats(out, 4)
      expect([...got].map(Number.isFinite)).toEqual([true, false, false, true])
      expect(got[3], 'both at their limits').toBeCloseTo(-6 * 7 * sigmoid(1.702 * 7), 4)
    }
  })
})

function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x))
}

function rowsOf(x: Float32Array, width: number): Float32Array[] {
  return Array.from({ length: x.length / width }, (_, i) => x.subarray(i * width, (i + 1) * width))
}

function shuffled(random: () => number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => ({ i, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ i }) => i)
}

/** Values that 16 bits hold. */
function toBf16(value: number): number {
  return Math.fround(Math.round(value * 16) / 16)
}

/** What a router chooses, by falling weight. */
function route(router: RouterShape, logits: Float32Array, bias: Float32Array, k: number) {
  const { score, selectionBias, groups, renormalize, scale } = router
  const largest = Math.max(...logits)
  const total = logits.reduce((sum, value) => sum + Math.exp(value - largest), 0)
  const all = [...logits].map((logit, expert) => {
    const weight = score === 'sigmoid' ? sigmoid(logit) : Math.exp(logit - largest) / total
    return { expert, weight, value: weight + (selectionBias ? bias[expert] : 0) }
  })
  const size = all.length / (groups?.count ?? 1)
  const worth = (group: number) => {
    const values = all.slice(group * size, (group + 1) * size).map(({ value }) => value)
    return values
      .sort((a, b) => b - a)
      .slice(0, 2)
      .reduce((a, b) => a + b, 0)
  }
  const best = Array.from({ length: groups?.count ?? 1 }, (_, group) => group)
    .sort((a, b) => worth(b) - worth(a))
    .slice(0, groups?.used ?? 1)
  const chosen = all
    .filter(({ expert }) => best.includes(Math.floor(expert / size)))
    .sort((a, b) => b.value - a.value)
    .slice(0, k)
    .sort((a, b) => b.weight - a.weight)
  const sum = renormalize ? chosen.reduce((part, { weight }) => part + weight, 0) : 1
  return chosen.map(({ expert, weight }) => ({ expert, weight: (weight / sum) * scale }))
}

// Kernels look at a few fields each.
function attentionConfig(numHeads: number, numKvHeads: number, headDim: number, mixer: AttentionShape): ModelConfig {
  const sizes = {
    hiddenSize: 32,
    moeIntermediateSize: 32,
    sharedExpertIntermediateSize: 32,
    numLayers: 1,
    numExperts: 1,
  }
  const linear = { linearKeyHeads: 0, linearValueHeads: 0, linearKeyDim: 0, linearValueDim: 0, linearConvDim: 0 }
  const layers = [{ mixer, feedForward: { kind: 'moe' } }]
  const rest = {
    numHeads,
    numKvHeads,
    headDim,
    rope: mixer.rope,
    rmsNormEps: 1e-6,
    layers,
    moeLayers: [0],
    expertLayers: [0],
  }
  return { ...sizes, ...linear, ...rest, draftHead: null } as unknown as ModelConfig
}

/** All of an attention layer between its projections, position by position. */
function attend(
  config: ModelConfig,
  shape: AttentionShape,
  inputs: Float32Array,
  norms: Float32Array,
  sinks: Float32Array,
): Float32Array {
  const { numHeads: heads, numKvHeads: kvHeads, headDim, rmsNormEps } = config
  const { stride, k, v } = attentionColumns(config, shape)
  const length = inputs.length / stride
  const { frequencies, magnitude } = ropeFrequencies(shape.rope)
  const prepared = (at: number, position: number, norm: number): Float64Array => {
    const x = Float64Array.from(inputs.subarray(at, at + headDim))
    const scale = 1 / Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / headDim + rmsNormEps)
    if (shape.qkNorm) for (let i = 0; i < headDim; i++) x[i] *= scale * norms[norm + i]
    for (const [i, frequency] of frequencies.entries()) {
      const [a, b] = [x[i], x[i + frequencies.length]]
      const [cos, sin] = [Math.cos(position * frequency) * magnitude, Math.sin(position * frequency) * magnitude]
      x[i] = a * cos - b * sin
      x[i + frequencies.length] = b * cos + a * sin
    }
    return x
  }
  const queryStride = headDim * (shape.outputGate ? 2 : 1)
  const out = new Float32Array(length * heads * headDim)
  for (let t = 0; t < length; t++) {
    for (let head = 0; head < heads; head++) {
      const kvHead = Math.floor(head / (heads / kvHeads))
      const query = prepared(t * stride + head * queryStride, t, 0)
      const seen: { weight: number; at: number }[] = []
      for (let p = shape.window === null ? 0 : Math.max(0, t - shape.window + 1); p <= t; p++) {
        const key = prepared(p * stride + k + kvHead * headDim, p, headDim)
        const score = query.reduce((sum, value, i) => sum + value * key[i], 0) / Math.sqrt(headDim)
        seen.push({ weight: Math.exp(score), at: p * stride + v + kvHead * headDim })
      }
      const total = seen.reduce((sum, { weight }) => sum + weight, shape.sinks ? Math.exp(sinks[head]) : 0)
      for (let i = 0; i < headDim; i++) {
        const value = seen.reduce((sum, { weight, at }) => sum + weight * inputs[at + i], 0) / total
        const gate = shape.outputGate ? sigmoid(inputs[t * stride + head * queryStride + headDim + i]) : 1
        out[(t * heads + head) * headDim + i] = value * gate
      }
    }
  }
  return out
}

interface TestExpert {
  readonly gate: QuantizedWeights
  readonly up: QuantizedWeights
  readonly down: QuantizedWeights
  readonly gateBias: Float32Array
  readonly upBias: Float32Array
  readonly downBias: Float32Array
}

function expert(weights: TestExpert, x: Float32Array, hasBias: boolean, activation: Activation): Float32Array {
  const product = (matrix: QuantizedWeights, input: Float32Array, bias: Float32Array) =>
    matVec(matrix, input).map((value, i) => value + (hasBias ? bias[i] : 0))
  const gate = product(weights.gate, x, weights.gateBias)
  const up = product(weights.up, x, weights.upBias)
  const activated = gate.map((g, i) => {
    if (activation.kind === 'silu') return g * sigmoid(g) * up[i]
    const { limit, alpha } = activation
    const [low, high] = [Math.min(g, limit), Math.max(-limit, Math.min(up[i], limit))]
    return (high + 1) * low * sigmoid(alpha * low)
  })
  return product(weights.down, activated, weights.downBias)
}

/** Experts one after the other, each: gate, up, down, and their biases as floats of a type. */
function paveSlots(experts: readonly TestExpert[], biasType: 'F32' | 'BF16' | null) {
  const slots = experts.map(made => {
    const pieces: Uint8Array[] = []
    let end = 0
    const place = (bytes: Uint8Array): number => {
      const at = end
      const size = Math.ceil(bytes.length / 256) * 256
      const padded = new Uint8Array(size)
      padded.set(bytes)
      pieces.push(padded)
      end += size
      return at
    }
    const lay = (weights: QuantizedWeights, floats: Float32Array) => {
      const { part, bytes } = packMatrix(weights, 0)
      const at = place(bytes)
      const [segment] = part.segments
      const halves = Uint16Array.from(new Uint32Array(floats.buffer), word => word >>> 16)
      const bias = biasType && {
        type: biasType,
        offset: place(new Uint8Array(biasType === 'F32' ? floats.buffer : halves.buffer)),
      }
      return {
        ...{ format: part.format, rows: weights.rows, cols: weights.cols },
        ...{ weight: at + segment.weight, scales: at + segment.scales, biases: at + segment.biases },
        ...(bias && { bias }),
      }
    }
    const gate = lay(made.gate, made.gateBias)
    const up = lay(made.up, made.upBias)
    const down = lay(made.down, made.downBias)
    return { layout: { stride: end, gate, up, down, moves: null }, bytes: pieces.flatMap(piece => [...piece]) }
  })
  return { layout: slots[0].layout, bytes: Uint8Array.from(slots.flatMap(({ bytes }) => bytes)) }
}
