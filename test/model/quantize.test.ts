// Affine quantization and the float types, against slow versions written straight from the format's definition.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  asUint16,
  bfloat16ToFloat32,
  findNonFinite,
  float16ToFloat32,
  float32ToBfloat16,
  float32ToFloat16,
  narrowToBfloat16,
  roundHalfEven,
  widenFloats,
} from '#moeflux/model/floats.js'
import {
  allocateQuantizedRows,
  dequantizeRows,
  QUANT_BITS,
  QUANT_GROUPS,
  type QuantizedRows,
  quantizedSizes,
  quantizeRows,
} from '#moeflux/model/quantize.js'
import type { QuantBits, QuantGroup } from '#moeflux/model/tensors.js'

const f = Math.fround

describe('floats', () => {
  test('half to even', () => {
    expect([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.4999, 7.5000001].map(roundHalfEven).map(x => x + 0)).toEqual([
      0, 2, 2, 0, -2, -2, 2, 8,
    ])
    expect(roundHalfEven(2 ** 60 + 2 ** 9)).toBe(2 ** 60 + 2 ** 9)
    expect(roundHalfEven(Number.NaN)).toBeNaN()
  })

  test('every half precision value survives a round trip', () => {
    for (let bits = 0; bits < 65536; bits++) {
      const f16 = float16ToFloat32(bits)
      if (!Number.isNaN(f16) && float32ToFloat16(f16) !== bits) expect.fail(`F16 ${bits}`)
      const bf16 = bfloat16ToFloat32(bits)
      if (!Number.isNaN(bf16) && float32ToBfloat16(bf16) !== bits) expect.fail(`BF16 ${bits}`)
    }
    expect(float16ToFloat32(0x3c01)).toBe(1 + 2 ** -10)
    expect(float16ToFloat32(0x0001)).toBe(2 ** -24)
    expect(float16ToFloat32(0x7c00)).toBe(Number.POSITIVE_INFINITY)
    expect(bfloat16ToFloat32(float32ToBfloat16(Number.NaN))).toBeNaN()
    expect(float16ToFloat32(float32ToFloat16(Number.NaN))).toBeNaN()
  })

  test('rounding goes to the nearest, half to even', () => {
    const nearest = (value: number, widen: (bits: number) => number, got: number) => {
      const distance = Math.abs(widen(got) - value)
      for (const other of [got - 1, got + 1]) {
        const theirs = Math.abs(widen(other & 0xffff) - value)
        if (Number.isNaN(theirs)) continue
        expect(
          distance < theirs || (distance === theirs && got % 2 === 0) || widen(got) === widen(other & 0xffff),
        ).toBe(true)
      }
    }
    fc.assert(
      fc.property(fc.float({ noNaN: true, noDefaultInfinity: true, min: -60000, max: 60000 }), value => {
        nearest(value, bfloat16ToFloat32, float32ToBfloat16(value))
        nearest(value, float16ToFloat32, float32ToFloat16(value))
      }),
    )
    expect(float32ToBfloat16(1 + 2 ** -8)).toBe(0x3f80) // exactly between two: to the even one
    expect(float32ToBfloat16(1 + 3 * 2 ** -8)).toBe(0x3f82)
  })

  test('bulk conversions work at odd addresses and find what is not finite', () => {
    const buffer = new Uint8Array(9)
    const odd = buffer.subarray(1)
    odd.set(new Uint8Array(Uint16Array.of(0x3f80, 0xbf80, 0x7f80, 0).buffer))
    const out = new Float32Array(4)
    widenFloats('BF16', odd, out)
    expect([...out]).toEqual([1, -1, Number.POSITIVE_INFINITY, 0])
    expect(asUint16(odd)[1]).toBe(0xbf80)
    expect(findNonFinite('BF16', odd)).toBe(2)
    expect(findNonFinite('F16', odd.subarray(0, 4))).toBe(-1)
    expect(findNonFinite('F32', new Uint8Array(Float32Array.of(1, Number.NaN).buffer))).toBe(1)
    const narrow = new Uint16Array(3)
    narrowToBfloat16(Float32Array.of(1.5, Number.NaN, Number.NEGATIVE_INFINITY), narrow)
    expect(bfloat16ToFloat32(narrow[1])).toBeNaN()
    expect([bfloat16ToFloat32(narrow[0]), bfloat16ToFloat32(narrow[2])]).toEqual([1.5, Number.NEGATIVE_INFINITY])
    expect(() => widenFloats('F32', new Uint8Array(6), out)).toThrow(RangeError)
  })
})

/** The definition, one weight at a time. */
function quantizeSlowly(values: Float32Array, bits: QuantBits, group: QuantGroup) {
  const n = 2 ** bits - 1
  const result = { q: [] as number[], scales: [] as number[], biases: [] as number[] }
  for (let start = 0; start < values.length; start += group) {
    const weights = [...values.subarray(start, start + group)]
    const [hi, lo] = [Math.max(...weights), Math.min(...weights)]
    let s = Math.max(f(f(hi - lo) / n), f(1e-7))
    const edge = Math.abs(lo) > Math.abs(hi) ? lo : hi
    if (edge === hi && !(Math.abs(lo) > Math.abs(hi))) s = -s
    const q0 = roundHalfEven(f(edge / s))
    let b = 0
    if (q0 !== 0) {
      s = f(edge / q0)
      b = edge
    }
    s = bfloat16ToFloat32(float32ToBfloat16(s))
    b = bfloat16ToFloat32(float32ToBfloat16(b))
    result.scales.push(s)
    result.biases.push(b)
    for (const w of weights) result.q.push(Math.min(Math.max(roundHalfEven(f(f(w - b) / s)), 0), n) + 0)
  }
  return result
}

function unpack(rows: QuantizedRows, bits: QuantBits): number[] {
  const q: number[] = []
  for (const word of rows.weight) {
    for (let i = 0; i < 32 / bits; i++) q.push(Number((BigInt(word) >> BigInt(i * bits)) & (2n ** BigInt(bits) - 1n)))
  }
  return q
}

const formats = QUANT_BITS.flatMap(bits => QUANT_GROUPS.map(group => [bits, group] as const))

describe.each(formats)('%i bits in groups of %i', (bits, group) => {
  const weights = fc
    .tuple(
      fc.integer({ min: 1, max: 4 }),
      fc.constantFrom(1e-9, 1e-3, 0.05, 1, 300),
      fc.infiniteStream(fc.float({ min: -1, max: 1, noNaN: true })),
    )
    .map(([groups, size, stream]) => Float32Array.from(stream.take(groups * group), x => x * size))

  test('equals the definition, element by element, and back', () => {
    fc.assert(
      fc.property(weights, values => {
        const want = quantizeSlowly(values, bits, group)
        const rows = allocateQuantizedRows(1, values.length, bits, group)
        expect(quantizeRows(values, bits, group, rows)).toBe(-1)
        expect(unpack(rows, bits)).toEqual(want.q)
        expect([...rows.scales].map(bfloat16ToFloat32)).toEqual(want.scales)
        expect([...rows.biases].map(x => bfloat16ToFloat32(x) + 0)).toEqual(want.biases.map(x => x + 0))

        const back = new Float32Array(values.length)
        const bytes = (part: Uint32Array | Uint16Array) => new Uint8Array(part.buffer)
        const parts = { weight: bytes(rows.weight), scales: bytes(rows.scales), biases: bytes(rows.biases) }
        dequantizeRows({ ...parts, scaleType: 'BF16' }, bits, group, back)
        const groupOf = (i: number) => Math.floor(i / group)
        const exact = want.q.map((q, i) => f(f(want.scales[groupOf(i)] * q) + want.biases[groupOf(i)]))
        expect([...back]).toEqual(exact)
        // One step (the edge is met exactly, the other end may be cut), and what 8-bit scales cost over the range.
        const tooFar = values.findIndex((value, i) => {
          const [s, b] = [Math.abs(want.scales[groupOf(i)]), Math.abs(want.biases[groupOf(i)])]
          return !(Math.abs(back[i] - value) <= s + (s * (2 ** bits - 1) + b) / 128)
        })
        expect(tooFar).toBe(-1)
      }),
      { numRuns: 25 },
    )
  })

  test('weights that have no finite scale are found', () => {
    const rows = allocateQuantizedRows(1, 3 * group, bits, group)
    for (const poison of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 3e38]) {
      for (const at of [2 * group, 3 * group - 1]) {
        const values = new Float32Array(3 * group).fill(0.25)
        values[at] = poison
        if (poison === 3e38) values[2 * group + 1] = -3e38
        expect(quantizeRows(values, bits, group, rows)).toBe(2)
      }
    }
    expect(quantizeRows(new Float32Array(3 * group), bits, group, rows)).toBe(-1)
  })

  test('sizes follow from the shape', () => {
    expect(quantizedSizes(7, 2 * group, bits, group)).toEqual({
      weight: (7 * 2 * group * bits) / 8,
      scales: 28,
      biases: 28,
    })
    expect(() => quantizedSizes(1, group + 1, bits, group)).toThrow(RangeError)
  })
})
