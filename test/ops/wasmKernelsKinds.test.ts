// What layers of other kinds need of the kernels, of both SIMD builds: routers that score, group and weigh otherwise,
// windows and sinks in attention, the clamped SwiGLU, biases, shared experts without a gate. Each against
// plain float64 code below, on random shapes.
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { PAGE_TOKENS } from '#moeflux/backends/kvPages.js'
import {
  attentionScratchBytes,
  floatTypeCode,
  routeScratchBytes,
  type SimdLevel,
} from '#moeflux/backends/wasm/kernels.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'
import { randomFloats, seededRandom } from '../support/random.js'
import { rowStride, WasmArena } from '../support/wasm/wasmArena.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 4e-6 }
const seeds = fc.integer({ min: 1, max: 2 ** 31 })
const upTo = (max: number) => fc.integer({ min: 1, max })
const fourths = (max: number) => upTo(max).map(n => n * 4)
const numRuns = 60
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x))

describe.each<SimdLevel>(['relaxed', 'baseline'])('kernels of other kinds, %s SIMD', simd => {
  let arena: WasmArena
  beforeAll(async () => {
    arena = await WasmArena.create(simd)
  })

  describe('route', () => {
    const rules = fc.record({
      sigmoid: fc.boolean(),
      biased: fc.boolean(),
      groups: fc.constantFrom(0, 1, 2, 4),
      groupSize: upTo(9),
      groupsUsed: fc.nat(),
      pick: fc.nat(),
      renormalize: fc.boolean(),
      scale: fc.constantFrom(1, 2.5),
      tokens: upTo(4),
      seed: seeds,
    })
    type Rule = typeof rules extends fc.Arbitrary<infer T> ? T : never

    const sizes = ({ groups, groupSize, groupsUsed, pick }: Rule) => {
      const used = groups === 0 ? 1 : 1 + (groupsUsed % groups)
      return { experts: Math.max(1, groups) * groupSize, used, k: 1 + (pick % (used * groupSize)) }
    }

    /** Every rule as float64 lists: scores, then groups, then the best. */
    function want(rule: Rule, logits: Float32Array, bias: Float32Array | null) {
      const { experts, used, k } = sizes(rule)
      const groups = Math.max(1, rule.groups)
      const top = Math.max(...logits)
      const powers = Array.from(logits, x => Math.exp(x - top))
      const all = powers.reduce((sum, x) => sum + x, 0)
      const scores = Array.from(logits, (x, i) => (rule.sigmoid ? sigmoid(x) : powers[i] / all))
      const choice = scores.map((score, i) => score + (bias?.[i] ?? 0))
      const size = experts / groups
      const ofGroup = Array.from({ length: groups }, (_, group) => {
        const [first, second = 0] = choice.slice(group * size, (group + 1) * size).sort((a, b) => b - a)
        return first + second
      })
      const falling = (values: readonly number[]) => [...values.keys()].sort((a, b) => values[b] - values[a] || a - b)
      const kept = new Set(falling(ofGroup).slice(0, used))
      const candidates = falling(choice).filter(expert => kept.has(Math.floor(expert / size)))
      const picked = candidates.slice(0, k).sort((a, b) => logits[b] - logits[a] || a - b)
      const chosen = picked.reduce((sum, expert) => sum + scores[expert], 0)
      const total = rule.renormalize ? chosen : 1
      const sums = [...ofGroup].sort((a, b) => b - a)
      const isApart = (last: number, next: number | undefined) => next === undefined || last - next > 1e-6
      return {
        picked,
        weights: picked.map(expert => (scores[expert] / total) * rule.scale),
        isClear:
          isApart(sums[used - 1], sums[used]) && isApart(choice[candidates[k - 1]], choice[candidates[k]] ?? undefined),
      }
    }

    function run(rule: Rule, logits: Float32Array, bias: Float32Array | null) {
      const { experts, used, k } = sizes(rule)
      const tokens = logits.length / experts
      const stride = rowStride(experts)
      const indices = arena.allocate(tokens * k * 4)
      const weights = arena.allocate(tokens * k * 4)
      const from = arena.putRows(logits, experts, stride)
      const biasAt = bias ? arena.putRows(bias, experts, stride) : 0
      const scratch = arena.allocate(routeScratchBytes(experts, rule.groups))
      const how = [rule.sigmoid, biasAt, rule.groups, used, rule.renormalize, rule.scale] as const
      for (let t = 0; t < tokens; t++) {
        arena.kernels.route(indices, weights, from, stride, experts, k, ...how, t, t + 1, scratch)
      }
      return { indices: arena.readInts(indices, tokens * k), weights: arena.read(weights, tokens * k) }
    }

    test('scores, selection bias, groups, totals and scale', () => {
      let clear = 0
      fc.assert(
        fc.property(rules, rule => {
          arena.reset()
          const random = seededRandom(rule.seed)
          const { experts, k } = sizes(rule)
          const logits = randomFloats(random, rule.tokens * experts, 4)
          const bias = rule.biased ? randomFloats(random, experts) : null
          const { indices, weights } = run(rule, logits, bias)
          for (let t = 0; t < rule.tokens; t++) {
            const expected = want(rule, logits.subarray(t * experts, (t + 1) * experts), bias)
            if (!expected.isClear) continue
            clear++
            expect([...indices.subarray(t * k, (t + 1) * k)]).toEqual(expected.picked)
            expectClose(weights.slice(t * k, (t + 1) * k), expected.weights, TIGHT)
          }
        }),
        { numRuns: 200 },
      )
      expect(clear).toBeGreaterThan(200)
    })

    test('indices stay distinct and valid, and what is not finite does not vanish', () => {
      const wild = fc.constantFrom(Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, 0, 3e38, -3e38)
      const value = fc.oneof({ weight: 8, arbitrary: fc.constantFrom(0, 1, -1) }, wild)
      fc.assert(
        fc.property(rules, fc.array(value, { minLength: 72, maxLength: 72 }), (rule, values) => {
          arena.reset()
          const { experts, k } = sizes(rule)
          const logits = Float32Array.from(values.slice(0, experts))
          const bias = rule.biased ? Float32Array.from(values.slice(36, 36 + experts)) : null
          const { indices, weights } = run(rule, logits, bias)
          expect(new Set(indices).size).toBe(k)
          expect(indices.every(i => i < experts)).toBe(true)
          const isSound = logits.every(Number.isFinite) && (bias?.every(Number.isFinite) ?? true)
          if (!isSound) expect(weights.some(Number.isFinite)).toBe(false)
          // Powers of logits that are far below the highest are all 0, and so may the sum of the chosen be.
          else if (rule.sigmoid || !rule.renormalize) expect(weights.every(Number.isFinite)).toBe(true)
        }),
        { numRuns: 200 },
      )
    })
  })

  describe('attention with a window, with sinks', () => {
    const shapes = fc.record({
      kvHeads: upTo(2),
      perKvHead: upTo(3),
      headDim: fourths(9),
      start: fc.oneof(fc.nat(5), fc.nat(210)),
      tokens: fc.oneof(upTo(3), upTo(30)),
      window: fc.oneof(fc.constant(0), upTo(5), upTo(140)),
      sinks: fc.boolean(),
      size: fc.constantFrom(1, 5),
      seed: seeds,
    })

    test('float64’s, and the same bits for any cut in tokens and heads', () => {
      fc.assert(
        fc.property(shapes, fc.nat(), fc.nat(), (shape, tokenCut, headCut) => {
          arena.reset()
          const { kvHeads, perKvHead, headDim, start, tokens, window, size } = shape
          const random = seededRandom(shape.seed)
          const heads = kvHeads * perKvHead
          const width = kvHeads * headDim
          const pages = Math.ceil((start + tokens) / PAGE_TOKENS)
          const q = randomFloats(random, tokens * heads * headDim, size)
          const keys = Array.from({ length: pages }, () => randomFloats(random, PAGE_TOKENS * width, size))
          const values = Array.from({ length: pages }, () => randomFloats(random, PAGE_TOKENS * width, size))
          const sinks = shape.sinks ? randomFloats(random, heads, 6) : null
          const kPages = arena.put(Uint32Array.from(keys, rows => arena.put(rows)))
          const vPages = arena.put(Uint32Array.from(values, rows => arena.put(rows)))
          const sinkAt = sinks ? arena.put(sinks) : 0
          const head = headDim * 4
          const from = arena.put(q)
          const stride = rowStride(heads * headDim)
          const attend = (begin: number, end: number, headBegin: number, headEnd: number, out: number) => {
            const scratch = arena.allocate(attentionScratchBytes(end - begin, headEnd - headBegin, headDim))
            arena.kernels.attention(
              ...([out + begin * stride, stride, from + begin * heads * head, heads * head, head] as const),
              ...([kPages, vPages, start + begin, end - begin, heads, kvHeads, headDim, headDim ** -0.5] as const),
              ...([window, sinkAt, headBegin, headEnd, scratch] as const),
            )
          }
          const whole = arena.allocate(tokens * stride)
          attend(0, tokens, 0, heads, whole)
          const got = arena.readRows(whole, tokens, heads * headDim, stride)
          const want = new Float32Array(got.length)
          for (let t = 0; t < tokens; t++) {
            for (let h = 0; h < heads; h++) {
              const position = start + t
              const first = window > 0 ? Math.max(0, position - window + 1) : 0
              const kv = Math.floor(h / perKvHead) * headDim
              const at = (t * heads + h) * headDim
              const row = (list: Float32Array[], p: number) =>
                list[Math.floor(p / PAGE_TOKENS)].subarray((p % PAGE_TOKENS) * width + kv)
              const scores: number[] = []
              for (let p = first; p <= position; p++) {
                let score = 0
                for (let i = 0; i < headDim; i++) score += q[at + i] * row(keys, p)[i]
                scores.push(score * headDim ** -0.5)
              }
              const highest = Math.max(...scores, sinks ? sinks[h] : Number.NEGATIVE_INFINITY)
              const powers = scores.map(score => Math.exp(score - highest))
              const total = powers.reduce((sum, x) => sum + x, sinks ? Math.exp(sinks[h] - highest) : 0)
              for (let i = 0; i < headDim; i++) {
                want[at + i] = powers.reduce((sum, p, n) => sum + p * row(values, first + n)[i], 0) / total
              }
            }
          }
          expectClose(got, want, { cosine: 0.999999, maxDifference: 2e-5 })

          const cut = arena.allocate(tokens * stride)
          const t = tokenCut % (tokens + 1)
          const h = headCut % (heads + 1)
          attend(0, t, 0, heads, cut)
          attend(t, tokens, 0, h, cut)
          attend(t, tokens, h, heads, cut)
          expectSameBits(arena.readRows(cut, tokens, heads * headDim, stride), got)
        }),
        { numRuns },
      )
    })

    test('pages that no query of the call sees are not touched', () => {
      arena.reset()
      const page = new Float32Array(PAGE_TOKENS * 4).fill(1)
      const seen = arena.put(page)
      const outside = 0xfffffff0 // a load from there traps
      const tables = arena.put(Uint32Array.from([outside, outside, seen, seen]))
      const out = arena.allocate(10 * 16)
      const scratch = arena.allocate(attentionScratchBytes(10, 1, 4))
      const q = arena.put(new Float32Array(10 * 4).fill(1))
      const shape = [out, 16, q, 16, 16, tables, tables] as const
      // Positions 180 to 189 with a window of 50: from 131 on, page 2.
      arena.kernels.attention(...shape, 180, 10, 1, 1, 4, 0.5, 50, 0, 0, 1, scratch)
      expect([...arena.read(out, 40)]).toEqual(new Array(40).fill(1))
    })
  })

  test('clampedSwiglu, over column slices; infinity does not vanish in the clamp', () => {
    fc.assert(
      fc.property(fourths(20), upTo(4), fc.constantFrom(1, 9, 200), seeds, (dim, tokens, size, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const gate = randomFloats(random, tokens * dim, size)
        const up = randomFloats(random, tokens * dim, size)
        const stride = rowStride(dim)
        const g = arena.putRows(gate, dim, stride)
        const u = arena.putRows(up, dim, stride)
        const cut = (seed % (dim / 4 + 1)) * 4
        // In place, as the runtime has it.
        arena.kernels.clampedSwiglu(g, stride, g, stride, u, stride, 7, 1.702, tokens, 0, cut)
        arena.kernels.clampedSwiglu(g, stride, g, stride, u, stride, 7, 1.702, tokens, cut, dim)
        const want = gate.map((x, i) => {
          const clamped = Math.min(x, 7)
          return (Math.max(-7, Math.min(up[i], 7)) + 1) * clamped * sigmoid(1.702 * clamped)
        })
        expectClose(arena.readRows(g, tokens, dim, stride), want, TIGHT)
      }),
      { numRuns },
    )
    for (const [gate, up] of [
      [Number.POSITIVE_INFINITY, 1],
      [1, Number.NEGATIVE_INFINITY],
      [Number.NaN, 1],
    ]) {
      arena.reset()
      const out = arena.floats(4)
      const g = arena.put(new Float32Array(4).fill(gate))
      const u = arena.put(new Float32Array(4).fill(up))
      arena.kernels.clampedSwiglu(out, 16, g, 16, u, 16, 7, 1.702, 1, 0, 4)
      expect([...arena.read(out, 4)]).toEqual(new Array(4).fill(Number.NaN))
    }
  })

  test('addBias of every float type, at odd addresses, on rows that a list names', () => {
    const types = fc.constantFrom<keyof typeof floatTypeCode>('BF16', 'F16', 'F32')
    fc.assert(
      fc.property(types, upTo(30), upTo(5), fc.boolean(), fc.nat(), seeds, (type, dim, tokens, listed, cut, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const stride = rowStride(dim)
        const x = randomFloats(random, tokens * dim)
        const out = arena.putRows(x, dim, stride)
        // Small integers and halves are the same in all three types.
        const bias = Float32Array.from({ length: dim }, () => Math.round(random() * 16 - 8) / 2)
        const half = { BF16: (v: number) => bitsOf(v) >>> 16, F16: halfBits }
        const stored = type === 'F32' ? bias : Uint16Array.from(bias, half[type])
        const at = arena.put(stored, 2 * (seed % 2))
        const order = Uint32Array.from({ length: tokens }, (_, t) => tokens - 1 - t)
        const list = listed ? arena.put(order) : 0
        const split = Math.floor((cut % (dim + 1)) / 4) * 4
        arena.kernels.addBias(out, stride, list, at, floatTypeCode[type], tokens, 0, split)
        arena.kernels.addBias(out, stride, list, at, floatTypeCode[type], tokens, split, dim)
        expectSameBits(
          arena.readRows(out, tokens, dim, stride),
          x.map((v, i) => v + bias[i % dim]),
        )
      }),
      { numRuns },
    )
  })

  test('combine without a shared expert, and with one that counts whole', () => {
    fc.assert(
      fc.property(fourths(24), upTo(6), upTo(5), fc.boolean(), seeds, (hidden, k, tokens, plain, seed) => {
        arena.reset()
        const random = seededRandom(seed)
        const routed = randomFloats(random, tokens * k * hidden)
        const weights = randomFloats(random, tokens * k)
        const shared = randomFloats(random, tokens * hidden)
        const stride = rowStride(hidden)
        const from = arena.putRows(routed, hidden, stride)
        const out = arena.allocate(tokens * stride)
        const sharedAt = plain ? arena.putRows(shared, hidden, stride) : 0
        const by = arena.put(weights)
        arena.kernels.combine(out, stride, from, stride, by, k, sharedAt, stride, 0, 0, tokens, 0, hidden)
        const want = shared.map((value, at) => {
          const t = Math.floor(at / hidden)
          let sum = plain ? value : 0
          for (let rank = 0; rank < k; rank++)
            sum += weights[t * k + rank] * routed[(t * k + rank) * hidden + (at % hidden)]
          return sum
        })
        expectClose(arena.readRows(out, tokens, hidden, stride), want, TIGHT)
      }),
      { numRuns },
    )
  })
})

function bitsOf(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0]
}

/** Of a value that a half holds exactly. */
function halfBits(value: number): number {
  const bits = bitsOf(value)
  if (value === 0) return bits >>> 16
  return ((bits >>> 16) & 0x8000) | ((((bits >>> 23) & 0xff) - 112) << 10) | ((bits >>> 13) & 0x3ff)
}
