// The matrix products in WGSL against the reference on random shapes: one token and many, resident and expert matrices,
// exact and with int8 activations, with subgroups and without. Outputs begin as NaN.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { RouterWeights } from '#moeflux/backends/webgpu/memory/routerWeights.js'
import { KernelSet } from '#moeflux/gpu/device/kernel.js'
import { activationBuffers } from '#moeflux/gpu/memory/activationBuffers.js'
import type { ModelConfig } from '#moeflux/model/config.js'
import { type RouterShape, SOFTMAX_ROUTER } from '#moeflux/model/layers.js'
import { swiGlu } from '#moeflux/ops/activation/reference.js'
import { matMulOp } from '#moeflux/ops/matmul/matMul.gpu.js'
import { expertMatVecOp, matVecOp } from '#moeflux/ops/matmul/matVec.gpu.js'
import { matVec } from '#moeflux/ops/matmul/reference.js'
import type { QuantizedWeights } from '#moeflux/ops/matmul/storedWeights.js'
import { rmsNorm } from '#moeflux/ops/norm/reference.js'
import { choiceConstants, logitsStride, routerOp } from '#moeflux/ops/router/router.gpu.js'
import { GpuArena, packMatrix } from '../support/gpu/gpuArena.js'
import { expectClose, KERNEL } from '../support/ops/bands.js'
import { expectProduct, productSize } from '../support/ops/products.js'
import { randomFloats, randomQuantized, seededRandom } from '../support/random.js'

/** int8 activations, one product: about 1/127 of the largest activation in each unit, averaged over columns. */
const FAST = { cosine: 0.9995, maxDifference: 0.05 }

const shapes = fc
  .record({
    bits: fc.constantFrom(2 as const, 4 as const, 8 as const),
    group: fc.constantFrom(32 as const, 64 as const, 128 as const),
    groups: fc.integer({ min: 1, max: 5 }),
    rows: fc.integer({ min: 1, max: 90 }),
    tokens: fc.integer({ min: 1, max: 20 }),
    fast: fc.boolean(),
    seed: fc.integer({ min: 1, max: 2 ** 31 }),
  })
  .map(shape => ({ ...shape, cols: shape.group * shape.groups }))

// A workgroup keeps 2048 columns of floats, or 8192 of bytes: one group more than that takes a second turn.
const wide = [false, true].map(fast => {
  const cols = (fast ? 8192 : 2048) + 32
  return { bits: 4 as const, group: 32 as const, groups: cols / 32, cols, rows: 5, tokens: 2, fast, seed: 7 }
})

const devices = [
  { name: 'subgroups', options: {} },
  { name: 'portable', options: { subgroups: false, packedDot: false, defaultLimits: true } },
]

describe.each(devices)('matrix products, $name', ({ options }) => {
  let arena: GpuArena
  beforeAll(async () => {
    arena = await GpuArena.open(options)
  })
  afterAll(() => arena.close())

  const rowsOf = (x: Float32Array, width: number) =>
    Array.from({ length: x.length / width }, (_, i) => x.subarray(i * width, (i + 1) * width))
  const joined = (rows: readonly Float32Array[]) => Float32Array.from(rows.flatMap(row => [...row]))

  test('many tokens, rows with gaps around them', async () => {
    const property = fc.asyncProperty(shapes, async ({ bits, group, cols, rows, tokens, fast, seed }) => {
      const random = seededRandom(seed)
      const { tuning } = arena.exact
      // Tiles as they are here, and sometimes as on a GPU.
      const TILE_TOKENS = seed % 4 === 0 ? 64 : tuning.TILE_TOKENS
      const gpu = { ...(fast ? arena.fast : arena.exact), tuning: { ...tuning, TILE_TOKENS } }
      const weights = randomQuantized(random, rows, cols, bits, group)
      const x = randomFloats(random, tokens * cols, 2)
      const stride = rows + 3
      const input = activationBuffers(gpu, tokens, cols, 'x')
      arena.device.queue.writeBuffer(input.values, 0, x)
      const out = arena.poisoned(tokens * stride)
      const part = arena.matrix(weights, 2)
      const product = { step: arena.step(tokens), maxTokens: tokens, outStride: stride, label: 'test' }
      await arena.run(await matMulOp(gpu, [part], input, out, product), { tokens })
      const got = rowsOf(await arena.floats(out, tokens * stride), stride)
      expectProduct(joined(got.map(row => row.subarray(2, 2 + rows))), weights, x, fast ? FAST : KERNEL)
      const around = got.flatMap(row => [row[0], row[1], row[stride - 1]])
      expect(around.every(Number.isNaN), 'nothing else is written').toBe(true)
    })
    await fc.assert(property, { numRuns: 8, examples: wide.map(shape => [shape]) })
  })

  test('one token: norm, SwiGLU, added or stored, nothing after a miss', async () => {
    const flags = { norm: fc.boolean(), swiglu: fc.boolean(), add: fc.boolean() }
    // Threads as they are dealt out here, and as on a GPU.
    const teams = fc.constantFrom({}, { WG: 64, TEAM: 32, ROWS: 4, WORKGROUPS: 128 })
    const variants = fc.record({ ...flags, missed: fc.nat(5), teams })
    const property = fc.asyncProperty(shapes, variants, async (shape, { norm, swiglu, add, missed, teams }) => {
      const { bits, group, cols, rows, fast, seed } = shape
      const random = seededRandom(seed)
      const tuning = { ...arena.exact.tuning, ...teams }
      const gpu = { ...(fast ? arena.fast : arena.exact), tuning }
      const tokens = Math.min(3, shape.tokens)
      const weights = randomQuantized(random, rows, cols, bits, group)
      const x = randomFloats(random, tokens * cols * (swiglu ? 2 : 1), 2)
      const weight = randomFloats(random, cols).map(value => value + 2)
      const isMiss = missed === 0
      const before = randomFloats(random, tokens * rows)
      const out = add ? arena.put(before) : arena.poisoned(tokens * rows)
      const op = await matVecOp(gpu, [arena.matrix(weights)], arena.put(x), out, {
        status: arena.put(Uint32Array.of(isMiss ? 3 : 0, 0, 0, 0)),
        outStride: rows,
        norm: norm ? { weight: arena.put(weight), eps: 1e-6 } : undefined,
        activation: swiglu ? { kind: 'silu' } : undefined,
        add,
        label: 'test',
      })
      await arena.run(op, { tokens })
      const got = await arena.floats(out, tokens * rows)
      if (isMiss) {
        expect(add ? [...got] : got.every(Number.isNaN)).toEqual(add ? [...before] : true)
        return
      }
      const inputs = rowsOf(x, x.length / tokens).map(row => {
        const activated = swiglu ? swiGlu(row.subarray(0, cols), row.subarray(cols)) : row
        return norm ? rmsNorm(activated, weight, 1e-6) : activated
      })
      const want = joined(inputs.map(row => matVec(weights, row))).map((value, i) => value + (add ? before[i] : 0))
      expectClose(got, want, fast ? FAST : KERNEL, 'product', productSize(weights, joined(inputs)))
    })
    const plain = { norm: false, swiglu: true, add: false, missed: 1, teams: {} }
    const examples = wide.flatMap(shape => [
      { shape, variant: plain },
      { shape, variant: { ...plain, norm: true, swiglu: false } },
    ])
    await fc.assert(property, { numRuns: 10, examples: examples.map(({ shape, variant }) => [shape, variant]) })
  })

  test('an input that is not finite makes all of its token’s outputs so, and no other’s', async () => {
    const wrong = fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY)
    const property = fc.asyncProperty(shapes, wrong, async ({ bits, group, cols, rows, fast, seed }, value) => {
      const random = seededRandom(seed)
      const gpu = fast ? arena.fast : arena.exact
      const tokens = 2
      const weights = randomQuantized(random, rows, cols, bits, group)
      const x = randomFloats(random, tokens * cols, 2)
      x[cols + Math.floor(random() * cols)] = value
      const input = activationBuffers(gpu, tokens, cols, 'x')
      arena.device.queue.writeBuffer(input.values, 0, x)
      const [many, one] = [arena.poisoned(tokens * rows), arena.poisoned(tokens * rows)]
      const product = { step: arena.step(tokens), maxTokens: tokens, outStride: rows, label: 'test' }
      await arena.run(await matMulOp(gpu, [arena.matrix(weights)], input, many, product), { tokens })
      const options = { status: arena.put(new Uint32Array(4)), outStride: rows, label: 'test' }
      await arena.run(await matVecOp(gpu, [arena.matrix(weights)], arena.put(x), one, options), { tokens })
      for (const out of [many, one]) {
        const finite = [...(await arena.floats(out, tokens * rows))].map(Number.isFinite)
        expect(finite).toEqual(finite.map((_, i) => i < rows))
      }
    })
    await fc.assert(property, { numRuns: 8 })
  })

  test('the chosen experts of a token, from their slots', async () => {
    const property = fc.asyncProperty(shapes, fc.integer({ min: 1, max: 4 }), async (shape, k) => {
      const { bits, group, cols, rows, fast, seed } = shape
      const random = seededRandom(seed)
      const gpu = fast ? arena.fast : arena.exact
      const tokens = Math.min(2, shape.tokens)
      const slots: QuantizedWeights[] = Array.from({ length: 5 }, () =>
        randomQuantized(random, rows, cols, bits, group),
      )
      const packed = slots.map(weights => packMatrix(weights, 0))
      const stride = packed[0].bytes.length
      const pool = arena.put(Uint8Array.from(packed.flatMap(({ bytes }) => [...bytes])))
      const choice = Uint32Array.from({ length: tokens * k }, () => Math.floor(random() * slots.length))
      const mixing = Uint32Array.from([...choice].flatMap(slot => [slot, 0]))
      const x = randomFloats(random, tokens * cols, 2)
      const out = arena.poisoned(tokens * k * rows)
      const status = arena.put(new Uint32Array(4))
      const { format, segments } = packed[0].part
      const options = { status, outStride: rows, label: 'test' }
      const weights = { pool: { generation: 0, buffer: pool }, slotStride: stride, format, cols, segments }
      const product = { ...weights, x: arena.put(x), y: out, mixing: arena.put(mixing), k, own: null }
      const op = await expertMatVecOp(gpu, product, options)
      await arena.run(op, { tokens })
      const want = joined([...choice].map((slot, i) => matVec(slots[slot], rowsOf(x, cols)[Math.floor(i / k)])))
      const size = Math.max(...slots.map(weights => productSize(weights, x)))
      expectClose(await arena.floats(out, tokens * k * rows), want, fast ? FAST : KERNEL, 'products', size)
    })
    await fc.assert(property, { numRuns: 6, examples: wide.map(shape => [shape, 3]) })
  })

  test('routers of the next layers beside a layer’s own and its gate, each after its own norm', async () => {
    const [experts, cols, tokens, ahead] = [9, 96, 3, 2]
    const random = seededRandom(5)
    const matrix = (rows: number) => randomQuantized(random, rows, cols, 8, 32)
    const layers = Array.from({ length: 4 }, () => ({ router: matrix(experts), gate: matrix(1) }))
    // All in one buffer, as resident weights lie.
    const placed = layers.flatMap(({ router, gate }, layer) => [
      packMatrix(router, layer * (experts + 1)),
      packMatrix(gate, layer * (experts + 1) + experts),
    ])
    let at = 0
    const segments = placed.map(({ part, bytes }) => {
      const [{ weight, scales, biases, ...rest }] = part.segments
      const segment = { ...rest, weight: at + weight, scales: at + scales, biases: at + biases }
      at += bytes.length
      return segment
    })
    const buffer = arena.put(Uint8Array.from(placed.flatMap(({ bytes }) => [...bytes])))
    const { format } = placed[0].part
    const numExperts = { numExperts: experts } as ModelConfig
    const weights = new RouterWeights([{ format, cols, segments, buffer }], numExperts)
    const x = randomFloats(random, tokens * cols, 2)
    const norms = randomFloats(random, (1 + ahead) * cols).map(value => value + 2)
    const outStride = logitsStride(experts, ahead)
    const out = arena.poisoned(tokens * outStride)
    const norm = { weight: arena.put(norms), eps: 1e-6 }
    const options = { status: arena.put(new Uint32Array(4)), outStride, norm, exact: true, label: 'test' }
    const part = weights.withNext(1, ahead)
    await arena.run(await matVecOp(arena.fast, [part!], arena.put(x), out, options), { tokens })
    const want = rowsOf(x, cols).flatMap(row => {
      const [own, second, third] = rowsOf(norms, cols).map(weight => rmsNorm(row, weight, 1e-6))
      return [
        ...[matVec(layers[1].router, own), matVec(layers[1].gate, own)],
        ...[matVec(layers[2].router, second), matVec(layers[3].router, third)],
      ]
    })
    expectClose(await arena.floats(out, tokens * outStride), joined(want), KERNEL)

    // Nothing past the last layer, and no dispatch over two buffers.
    expect(weights.withNext(2, ahead)).toBe(null)
    const apart = [segments.slice(0, 4), segments.slice(4)].map(own => {
      return { format, cols, segments: own, buffer: arena.put(new Uint8Array(16)) }
    })
    expect(new RouterWeights(apart, numExperts).withNext(1, 1)).toBe(null)
  })
})

// A product that chooses by itself binds more buffers than WebGPU promises.
describe('experts that a product chooses by itself', () => {
  let arena: GpuArena
  let portable: KernelSet
  beforeAll(async () => {
    arena = await GpuArena.open()
    portable = new KernelSet(arena.device, { SUBGROUPS: false, PACKED_DOT: false })
  })
  afterAll(() => arena.close())

  test('are those that router chooses, to the bit', async () => {
    const routers = fc.record({
      experts: fc.integer({ min: 1, max: 40 }),
      k: fc.integer({ min: 1, max: 6 }),
      isShared: fc.boolean(),
      selects: fc.boolean(),
      wrong: fc.integer({ min: 0, max: 60 }),
      isPortable: fc.boolean(),
    })
    const property = fc.asyncProperty(shapes, routers, async (shape, drawn) => {
      const { bits, group, cols, rows, fast, seed } = shape
      const { experts, isShared, selects, wrong } = drawn
      const random = seededRandom(seed)
      const own = fast ? arena.fast : arena.exact
      const gpu = drawn.isPortable ? { ...own, kernels: portable, subgroups: null } : own
      const tokens = Math.min(3, shape.tokens)
      const k = Math.min(drawn.k, experts)
      const ranks = k + (isShared ? 1 : 0)
      const [layers, layer, slotCount] = [2, 1, 5]
      const packed = Array.from({ length: slotCount }, () =>
        packMatrix(randomQuantized(random, rows, cols, bits, group), 0),
      )
      const pool = { generation: 0, buffer: arena.put(Uint8Array.from(packed.flatMap(({ bytes }) => [...bytes]))) }
      const { format, segments } = packed[0].part
      const stride = packed[0].bytes.length
      const routed = { experts, k, maxTokens: 4, logitsStride: logitsStride(experts, 0), pairTile: 32 }
      const values = randomFloats(random, tokens * routed.logitsStride, 4).map(value => Math.round(value))
      if (wrong < values.length) values[wrong] = Number.NaN
      const selection = selects ? arena.put(randomFloats(random, experts)) : null
      const slotTable = arena.put(
        Uint32Array.from({ length: layers * experts }, () => Math.floor(random() * slotCount)),
      )
      const score: RouterShape = { ...SOFTMAX_ROUTER, score: selects ? 'sigmoid' : 'softmax', selectionBias: selects }
      const moe = { router: score, shared: 'gated' as const }
      const [logits, x, status] = [
        arena.put(values),
        arena.put(randomFloats(random, tokens * cols, 2)),
        arena.put(new Uint32Array(4)),
      ]
      const sharedSlot = isShared ? 3 : null
      const results: Uint32Array[][] = []
      for (const isOwn of [false, true]) {
        const [choice, mixing] = [arena.poisoned((layers + 1) * 4 * k), arena.poisoned(tokens * ranks * 2)]
        const out = arena.poisoned(tokens * ranks * rows)
        const buffers = { logits, slotTable, choice, mixing, status, selectionBias: selection }
        const decode = { sharedSlot, ahead: 0, layers, spareSlot: 0, leftRow: layers }
        if (!isOwn) await arena.run(await routerOp(gpu, routed, moe, buffers, layer, decode), { tokens })
        const constants = choiceConstants(gpu, routed, score, isShared ? 'gated' : 'none')
        const chooses = { constants, logits, slotTable, selectionBias: selection, choice, layer, sharedSlot }
        const options = { status, outStride: rows, label: 'test' }
        const weights = { pool, slotStride: stride, format, cols, segments }
        const product = { ...weights, x, y: out, mixing, k: ranks, own: isOwn ? chooses : null }
        const op = await expertMatVecOp(gpu, product, options)
        await arena.run(op, { tokens })
        results.push([
          await arena.words(out, tokens * ranks * rows),
          await arena.words(mixing, tokens * ranks * 2),
          (await arena.words(choice, layers * 4 * k)).subarray(layer * 4 * k, (layer * 4 + tokens) * k),
        ])
      }
      // Beside a NaN two experts are the first: whichever is taken, the token's weights are NaN.
      const isNan = wrong < values.length && wrong % routed.logitsStride < experts
      const unsure = isNan ? Math.floor(wrong / routed.logitsStride) : -1
      const sure = (words: Uint32Array) => {
        const perToken = words.length / tokens
        return words.filter((_, i) => Math.floor(i / perToken) !== unsure)
      }
      const [told, chosen] = results
      for (const [i, what] of ['products', 'mixing', 'choice'].entries()) {
        expect(sure(chosen[i]), what).toEqual(sure(told[i]))
      }
      if (!isNan) return
      for (const [, mixing] of results) {
        const weights = new Float32Array(mixing.slice(unsure * ranks * 2, (unsure * ranks + k) * 2).buffer)
        expect(weights.filter((_, i) => i % 2 === 1).every(Number.isNaN), 'weights').toBe(true)
      }
    })
    // More experts than one vector for each thread, and more of them chosen than there are threads.
    const many = { experts: 90, k: 19, isShared: true, wrong: 10_000, isPortable: false }
    await fc.assert(property, {
      numRuns: 6,
      examples: [false, true].map(selects => [wide[0], { ...many, selects }]),
    })
  })
})
