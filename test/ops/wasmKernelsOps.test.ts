// The kernels between the matrices, of both SIMD builds, against the reference on random shapes; many tokens against one
// at a time and slices against the whole, bit by bit; rows with gaps between them and outputs that begin as NaN.
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { PAGE_TOKENS } from '#moeflux/backends/kvPages.js'
import { attentionScratchBytes, routeScratchBytes, type SimdLevel } from '#moeflux/backends/wasm/kernels.js'
import { ropeFrequencies } from '#moeflux/model/ropeFrequencies.js'
import { sigmoidGate, swiGlu } from '#moeflux/ops/activation/reference.js'
import { attention } from '#moeflux/ops/attention/reference.js'
import { conv1d } from '#moeflux/ops/conv1d/reference.js'
import { deltaGates, gatedDelta } from '#moeflux/ops/gatedDelta/reference.js'
import { combine } from '#moeflux/ops/moe/reference.js'
import { l2Norm, rmsNorm, rmsNormGated } from '#moeflux/ops/norm/reference.js'
import { rope } from '#moeflux/ops/rope/reference.js'
import { router } from '#moeflux/ops/router/reference.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'
import { randomFloats, seededRandom } from '../support/random.js'
import { rowStride, WasmArena } from '../support/wasm/wasmArena.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 2e-6 }
const seeds = fc.integer({ min: 1, max: 2 ** 31 })
const upTo = (max: number) => fc.integer({ min: 1, max })
const fourths = (max: number) => upTo(max).map(n => n * 4)
const numRuns = 40

describe.each<SimdLevel>(['relaxed', 'baseline'])('operations, %s SIMD', simd => {
  let arena: WasmArena
  beforeAll(async () => {
    arena = await WasmArena.create(simd)
  })

  test('rmsNorm of rows, of heads, in place', () => {
    fc.assert(
      fc.property(upTo(70), upTo(4), upTo(5), seeds, (dim, tokens, heads, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const x = randomFloats(random, tokens * heads * dim, 3)
        const weight = randomFloats(random, dim)
        const want = rmsNorm(x, weight, 1e-6)
        const stride = rowStride(dim)
        const from = arena.putRows(x, dim, stride)
        const w = arena.put(weight)
        const out = arena.allocate(tokens * heads * stride)
        arena.kernels.rmsNorm(out, stride, from, stride, w, dim, 1e-6, tokens * heads)
        expectClose(arena.readRows(out, tokens * heads, dim, stride), want, TIGHT)
        const token = stride * heads
        arena.kernels.rmsNormHeads(from, token, stride, from, token, stride, w, dim, 1e-6, tokens, heads)
        expectSameBits(
          arena.readRows(from, tokens * heads, dim, stride),
          arena.readRows(out, tokens * heads, dim, stride),
        )
      }),
      { numRuns },
    )
  })

  test('rmsNormGated and l2NormHeads, over head slices', () => {
    fc.assert(
      fc.property(fourths(20), upTo(4), upTo(5), seeds, (dim, tokens, heads, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const width = dim * heads
        const stride = rowStride(width)
        const x = randomFloats(random, tokens * width, 2)
        const z = randomFloats(random, tokens * width, 30)
        const weight = randomFloats(random, dim)
        const from = arena.putRows(x, width, stride)
        const gate = arena.putRows(z, width, stride)
        const w = arena.put(weight)
        const out = arena.allocate(tokens * stride)
        const cut = seed % (heads + 1)
        for (const [begin, end] of [
          [0, cut],
          [cut, heads],
        ] as const) {
          arena.kernels.rmsNormGated(out, stride, from, stride, gate, stride, w, dim, 1e-6, tokens, begin, end)
        }
        expectClose(arena.readRows(out, tokens, width, stride), rmsNormGated(x, z, weight, 1e-6), TIGHT)
        for (const [begin, end] of [
          [0, cut],
          [cut, heads],
        ] as const) {
          arena.kernels.l2NormHeads(out, stride, from, stride, dim, 0.25, tokens, begin, end)
        }
        expectClose(arena.readRows(out, tokens, width, stride), l2Norm(x, dim, 0.25), TIGHT)
      }),
      { numRuns },
    )
  })

  test('rope turns the first channels only', () => {
    fc.assert(
      fc.property(upTo(20), upTo(5), upTo(4), fc.nat(200_000), seeds, (half, heads, tokens, start, seed) => {
        arena.reset()
        const rotaryDim = half * 2
        const headDim = rotaryDim + 6
        const frequencies = ropeFrequencies({ dims: rotaryDim, theta: 1e7, yarn: null })
        const x = randomFloats(seededRandom(seed), tokens * heads * headDim)
        const stride = rowStride(headDim)
        const at = arena.putRows(x, headDim, stride)
        const table = new Float32Array(tokens * rotaryDim)
        for (let t = 0; t < tokens; t++) {
          for (let i = 0; i < half; i++) {
            const angle = (start + t) * 1e7 ** ((-2 * i) / rotaryDim)
            table[t * rotaryDim + i] = Math.cos(angle)
            table[t * rotaryDim + half + i] = Math.sin(angle)
          }
          rope(x.subarray(t * heads * headDim, (t + 1) * heads * headDim), start + t, headDim, frequencies)
        }
        const tableStride = rowStride(rotaryDim)
        const angles = arena.putRows(table, rotaryDim, tableStride)
        arena.kernels.rope(at, stride * heads, stride, angles, tableStride, rotaryDim, tokens, heads)
        expectClose(arena.readRows(at, tokens * heads, headDim, stride), x, TIGHT)
      }),
      { numRuns },
    )
  })

  test('sigmoidGate, siluMul, add', () => {
    fc.assert(
      fc.property(
        fourths(20),
        upTo(3),
        upTo(4),
        fc.constantFrom(1, 20, 120),
        seeds,
        (dim, heads, tokens, size, seed) => {
          arena.reset()
          const random = seededRandom(seed)
          const rows = heads * tokens
          const x = randomFloats(random, rows * dim)
          const gate = randomFloats(random, rows * dim, size)
          const stride = rowStride(dim)
          const a = arena.putRows(x, dim, stride)
          const b = arena.putRows(gate, dim, stride)
          const out = arena.allocate(rows * stride)
          const cut = (seed % (dim / 4 + 1)) * 4
          arena.kernels.siluMul(out, stride, b, stride, a, stride, rows, 0, cut)
          arena.kernels.siluMul(out, stride, b, stride, a, stride, rows, cut, dim)
          expectClose(arena.readRows(out, rows, dim, stride), swiGlu(gate, x), TIGHT)
          const token = stride * heads
          const split = seed % (heads + 1)
          arena.kernels.sigmoidGate(a, token, stride, b, token, stride, dim, tokens, 0, split)
          arena.kernels.sigmoidGate(a, token, stride, b, token, stride, dim, tokens, split, heads)
          expectClose(arena.readRows(a, rows, dim, stride), sigmoidGate(x, gate), TIGHT)
          const sum = arena.floats(dim)
          arena.kernels.add(sum, arena.put(x.slice(0, dim)), arena.put(gate.slice(0, dim)), dim)
          expectSameBits(
            arena.read(sum, dim),
            x.slice(0, dim).map((v, i) => v + gate[i]),
          )
        },
      ),
      { numRuns },
    )
  })

  test('sigmoid is right to a few units in the last place, out to the ends', () => {
    arena.reset()
    const gate = Float32Array.from({ length: 4000 }, (_, i) => (i - 2000) / 16)
    gate.set([Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, Number.NaN, 0])
    const x = arena.put(new Float32Array(4000).fill(1))
    arena.kernels.sigmoidGate(x, 0, 0, arena.put(gate), 0, 0, 4000, 1, 0, 1)
    const got = arena.read(x, 4000)
    expect([...got.subarray(0, 4)]).toEqual([0, 1, Number.NaN, 0.5])
    for (let i = 4; i < 4000; i++) {
      const want = 1 / (1 + Math.exp(-gate[i]))
      // Below 2^-126 floats lose bits, and e^-x is infinite.
      expect(Math.abs(got[i] - want)).toBeLessThanOrEqual(Math.max(want * 4e-7, 2 ** -126))
    }
  })

  describe('attention', () => {
    const shapes = fc.record({
      kvHeads: upTo(3),
      perKvHead: upTo(4),
      headDim: fourths(24),
      start: fc.oneof(fc.nat(3), fc.nat(200)),
      tokens: fc.oneof(upTo(3), upTo(40)),
      size: fc.constantFrom(1, 6),
      seed: seeds,
    })

    function run(shape: typeof shapes extends fc.Arbitrary<infer T> ? T : never) {
      arena.reset()
      const { kvHeads, perKvHead, headDim, start, tokens, size, seed } = shape
      const random = seededRandom(seed)
      const heads = kvHeads * perKvHead
      const width = kvHeads * headDim
      const length = start + tokens
      const pages = Math.ceil(length / PAGE_TOKENS)
      const q = randomFloats(random, tokens * heads * headDim, size)
      const page = () => {
        const rows = randomFloats(random, PAGE_TOKENS * width, size)
        return rows
      }
      const keys = Array.from({ length: pages }, page)
      const values = Array.from({ length: pages }, page)
      // Rows past the end are NaN, as a fresh page may be.
      for (const rows of [keys[pages - 1], values[pages - 1]]) {
        rows.fill(Number.NaN, (((length - 1) % PAGE_TOKENS) + 1) * width)
      }
      const kPages = arena.put(Uint32Array.from(keys, rows => arena.put(rows)))
      const vPages = arena.put(Uint32Array.from(values, rows => arena.put(rows)))
      const headStride = headDim * 8 // query and gate side by side
      const from = arena.putRows(q, headDim, headStride)
      const stride = rowStride(heads * headDim)
      const attend = (begin: number, end: number, headBegin: number, headEnd: number, out: number) => {
        const scratch = arena.allocate(attentionScratchBytes(end - begin, headEnd - headBegin, headDim))
        arena.kernels.attention(
          ...([
            out + begin * stride,
            stride,
            from + begin * heads * headStride,
            heads * headStride,
            headStride,
          ] as const),
          ...([kPages, vPages, start + begin, end - begin, heads, kvHeads, headDim, headDim ** -0.5] as const),
          ...([0, 0, headBegin, headEnd, scratch] as const),
        )
      }
      const allocateOut = () => arena.allocate(tokens * stride)
      const read = (out: number) => arena.readRows(out, tokens, heads * headDim, stride)
      return { heads, keys, values, q, attend, allocateOut, read }
    }

    test('the reference’s', () => {
      fc.assert(
        fc.property(shapes, shape => {
          const { heads, keys, values, q, attend, allocateOut, read } = run(shape)
          const { start, tokens, kvHeads, headDim } = shape
          const out = allocateOut()
          attend(0, tokens, 0, heads, out)
          const got = read(out)
          const width = heads * headDim
          for (let t = 0; t < tokens; t++) {
            const query = q.slice(t * width, (t + 1) * width)
            const want = attention(query, keys, values, PAGE_TOKENS, start + t + 1, { heads, kvHeads, headDim })
            expectClose(got.slice(t * width, (t + 1) * width), want, { cosine: 0.999999, maxDifference: 2e-5 })
          }
        }),
        { numRuns: 60 },
      )
    })

    test('the same bits for any cut in tokens and heads', () => {
      fc.assert(
        fc.property(shapes, fc.nat(), fc.nat(), (shape, tokenCut, headCut) => {
          const { heads, attend, allocateOut, read } = run(shape)
          const { tokens } = shape
          const whole = allocateOut()
          attend(0, tokens, 0, heads, whole)
          const cut = allocateOut()
          const t = tokenCut % (tokens + 1)
          const h = headCut % (heads + 1)
          attend(0, t, 0, heads, cut)
          attend(t, tokens, 0, h, cut)
          attend(t, tokens, h, heads, cut)
          expectSameBits(read(cut), read(whole))
        }),
        { numRuns: 60 },
      )
    })
  })

  test('conv1dSilu, whole and cut in tokens and channels', () => {
    fc.assert(
      fc.property(fourths(12), fc.nat(7), fc.nat(), seeds, (channels, tokens, cut, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const x = randomFloats(random, tokens * channels, 2)
        const state = randomFloats(random, 3 * channels, 2)
        const taps = randomFloats(random, 4 * channels)
        const want = conv1d(x, state, taps)
        const stride = rowStride(channels)
        const from = arena.putRows(x, channels, stride)
        const stateIn = arena.put(state)
        const tapMajor = arena.put(taps.map((_, i) => taps[(i % channels) * 4 + Math.floor(i / channels)]))
        const out = arena.allocate(tokens * stride)
        const states = [stateIn, arena.floats(3 * channels), arena.floats(3 * channels)]
        const middle = cut % (tokens + 1)
        const split = (cut % (channels / 4 + 1)) * 4
        for (const [begin, end] of [
          [0, split],
          [split, channels],
        ] as const) {
          const run = (t: number, count: number, a: number, b: number) => {
            const shape = [channels, count, begin, end] as const
            arena.kernels.conv1dSilu(out + t * stride, stride, from + t * stride, stride, a, b, tapMajor, ...shape)
          }
          run(0, middle, states[0], states[1])
          run(middle, tokens - middle, states[1], states[2])
        }
        if (tokens > 0) expectClose(arena.readRows(out, tokens, channels, stride), want.out, TIGHT)
        expectSameBits(arena.read(states[2], 3 * channels), want.state)
        expectSameBits(arena.read(stateIn, 3 * channels), state)
      }),
      { numRuns },
    )
  })

  test('deltaGates', () => {
    fc.assert(
      fc.property(upTo(9), upTo(4), fc.constantFrom(1, 10, 60), seeds, (heads, tokens, size, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const padded = Math.ceil(heads / 4) * 4
        const stride = padded * 4
        const a = randomFloats(random, tokens * heads, size)
        const b = randomFloats(random, tokens * heads, size)
        const aLog = randomFloats(random, heads, 3)
        const dtBias = randomFloats(random, heads, 2)
        const pad = (v: Float32Array) => Float32Array.from({ length: padded }, (_, i) => v[i] ?? 0)
        const beta = arena.allocate(tokens * stride)
        const decay = arena.allocate(tokens * stride)
        const from = [arena.putRows(b, heads, stride), arena.putRows(a, heads, stride)] as const
        arena.kernels.deltaGates(
          beta,
          decay,
          ...from,
          stride,
          arena.put(pad(aLog)),
          arena.put(pad(dtBias)),
          heads,
          tokens,
        )
        const want = deltaGates(a, b, aLog, dtBias)
        expectClose(arena.readRows(beta, tokens, heads, stride), want.beta, TIGHT)
        expectClose(arena.readRows(decay, tokens, heads, stride), want.decay, { cosine: 0.999999, maxDifference: 1e-5 })
      }),
      { numRuns },
    )
  })

  test('gatedDelta, whole and cut in tokens and heads, never touching the state it reads', () => {
    const shapes = fc.record({
      keyHeads: upTo(3),
      perKeyHead: upTo(3),
      keyDim: fourths(12),
      valueDim: upTo(13),
      tokens: upTo(9),
      seed: seeds,
    })
    fc.assert(
      fc.property(shapes, fc.nat(), (shape, cut) => {
        arena.reset()
        const { keyHeads, perKeyHead, keyDim, valueDim, tokens, seed } = shape
        const random = seededRandom(seed)
        const valueHeads = keyHeads * perKeyHead
        const q = l2Norm(randomFloats(random, tokens * keyHeads * keyDim), keyDim, keyDim ** -0.5)
        const k = l2Norm(randomFloats(random, tokens * keyHeads * keyDim), keyDim)
        const v = randomFloats(random, tokens * valueHeads * valueDim)
        const decay = randomFloats(random, tokens * valueHeads).map(x => 0.75 + x / 4)
        const beta = randomFloats(random, tokens * valueHeads).map(x => 0.5 + x / 2)
        const initial = randomFloats(random, valueHeads * valueDim * keyDim)
        const state = initial.slice()
        const want = gatedDelta({ q, k, v, decay, beta }, state, { keyHeads, valueHeads, keyDim, valueDim })
        const qkStride = rowStride(keyHeads * keyDim)
        const stride = rowStride(valueHeads * valueDim)
        const gateStride = rowStride(valueHeads)
        const at = {
          q: arena.putRows(q, keyHeads * keyDim, qkStride),
          k: arena.putRows(k, keyHeads * keyDim, qkStride),
          v: arena.putRows(v, valueHeads * valueDim, stride),
          beta: arena.putRows(beta, valueHeads, gateStride),
          decay: arena.putRows(decay, valueHeads, gateStride),
        }
        const run = (out: number, t: number, count: number, from: number, to: number, begin: number, end: number) =>
          arena.kernels.gatedDelta(
            ...([out + t * stride, stride, at.q + t * qkStride, at.k + t * qkStride, qkStride] as const),
            ...([at.v + t * stride, stride, at.beta + t * gateStride, at.decay + t * gateStride, gateStride] as const),
            ...([from, to, keyHeads, valueHeads, keyDim, valueDim, count, begin, end] as const),
          )
        const states = [arena.put(initial), ...[1, 2, 3].map(() => arena.floats(initial.length))]
        const whole = arena.allocate(tokens * stride)
        run(whole, 0, tokens, states[0], states[1], 0, valueHeads)
        const got = arena.readRows(whole, tokens, valueHeads * valueDim, stride)
        expectClose(got, want, { cosine: 0.999999, maxDifference: 1e-5 })
        expectClose(arena.read(states[1], initial.length), state, { cosine: 0.999999, maxDifference: 1e-5 })
        expectSameBits(arena.read(states[0], initial.length), initial)

        const middle = 1 + (cut % tokens)
        const head = cut % (valueHeads + 1)
        const pieces = arena.allocate(tokens * stride)
        run(pieces, 0, middle, states[0], states[2], 0, head)
        run(pieces, 0, middle, states[0], states[2], head, valueHeads)
        if (middle < tokens) run(pieces, middle, tokens - middle, states[2], states[3], 0, valueHeads)
        expectSameBits(arena.readRows(pieces, tokens, valueHeads * valueDim, stride), got)
        const last = arena.read(middle < tokens ? states[3] : states[2], initial.length)
        expectSameBits(last, arena.read(states[1], initial.length))
      }),
      { numRuns: 60 },
    )
  })

  describe('route', () => {
    function run(logits: Float32Array, experts: number, k: number) {
      arena.reset()
      const tokens = logits.length / experts
      const stride = rowStride(experts)
      const indices = arena.allocate(tokens * k * 4)
      const weights = arena.allocate(tokens * k * 4)
      const from = arena.putRows(logits, experts, stride)
      const scratch = arena.allocate(routeScratchBytes(experts, 0))
      for (const [begin, end] of [
        [0, tokens >> 1],
        [tokens >> 1, tokens],
      ] as const) {
        const rule = [false, 0, 0, 0, true, 1] as const
        arena.kernels.route(indices, weights, from, stride, experts, k, ...rule, begin, end, scratch)
      }
      return { indices: [...arena.readInts(indices, tokens * k)], weights: arena.read(weights, tokens * k) }
    }

    test('the reference’s picks and weights, with many ties', () => {
      fc.assert(
        fc.property(
          upTo(40),
          fc.nat(),
          upTo(4),
          fc.constantFrom(2, 1000),
          seeds,
          (experts, pick, tokens, steps, seed) => {
            const k = 1 + (pick % experts)
            const logits = randomFloats(seededRandom(seed), tokens * experts).map(v => Math.round(v * steps) / 50)
            const got = run(logits, experts, k)
            const want = router(logits, experts, k)
            expect(got.indices).toEqual([...want.indices])
            expectClose(got.weights, want.weights, TIGHT)
          },
        ),
        { numRuns },
      )
    })

    test('indices stay distinct and valid whatever the logits are', () => {
      const wild = fc.constantFrom(Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, 0, 3e38, -3e38)
      fc.assert(
        fc.property(fc.array(wild, { minLength: 1, maxLength: 12 }), fc.nat(), (values, pick) => {
          const k = 1 + (pick % values.length)
          const { indices, weights } = run(Float32Array.from(values), values.length, k)
          expect(new Set(indices).size).toBe(k)
          expect(indices.every(i => i < values.length)).toBe(true)
          // What is not finite does not vanish because its expert is not chosen.
          const isSound = values.every(Number.isFinite)
          expect([...weights].every(weight => Number.isFinite(weight) === isSound)).toBe(true)
        }),
        { numRuns },
      )
    })
  })

  test('combine, whole and cut in columns and tokens', () => {
    fc.assert(
      fc.property(fourths(12), upTo(6), upTo(5), fc.nat(), seeds, (hidden, k, tokens, cut, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const routed = randomFloats(random, tokens * k * hidden)
        const weights = randomFloats(random, tokens * k).map(Math.abs)
        const shared = randomFloats(random, tokens * hidden)
        const gate = randomFloats(random, tokens, 4)
        const stride = rowStride(hidden)
        const at = {
          routed: arena.putRows(routed, hidden, stride),
          weights: arena.put(weights),
          shared: arena.putRows(shared, hidden, stride),
          gate: arena.putRows(gate, 1, 16),
        }
        const out = arena.allocate(tokens * stride)
        const split = (cut % (hidden / 4 + 1)) * 4
        for (const [begin, end] of [
          [0, split],
          [split, hidden],
        ] as const) {
          arena.kernels.combine(
            ...([out, stride, at.routed, stride, at.weights, k, at.shared, stride, at.gate, 16] as const),
            ...([tokens, begin, end] as const),
          )
        }
        const sharedGate = gate.map(g => 1 / (1 + Math.exp(-g)))
        const got = arena.readRows(out, tokens, hidden, stride)
        expectClose(got, combine(routed, weights, shared, sharedGate, sharedGate.length), TIGHT)
      }),
      { numRuns },
    )
  })

  test('argmax takes the first of the highest, and none where something is not finite', () => {
    const wrong = fc.constantFrom(Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY)
    const values = fc.oneof({ weight: 60, arbitrary: fc.constantFrom(-1, 0, 2, 3, 3.4e38, -3.4e38) }, wrong)
    fc.assert(
      fc.property(fc.array(values, { minLength: 1, maxLength: 30 }), x => {
        arena.reset()
        const want = x.every(Number.isFinite) ? x.indexOf(Math.max(...x)) : -1
        expect(arena.kernels.argmax(arena.put(Float32Array.from(x)), x.length)).toBe(want)
      }),
      { numRuns: 200 },
    )
  })
})
