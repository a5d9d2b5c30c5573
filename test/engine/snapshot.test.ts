// MFLX bytes and their envelope on a small made-up shape: everything that a file at rest can have wrong with it.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { SnapshotError, SnapshotErrorCode } from '#moeflux/base/errors.js'
import { checkSnapshot, decodeLayers, snapshotSize } from '#moeflux/engine/snapshot.js'
import { decodeEnvelope, type EnvelopeBody, encodeEnvelope } from '#moeflux/engine/snapshotEnvelope.js'
import { parseConfig } from '#moeflux/model/config.js'
import { seededRandom } from '../support/random.js'

// Two full-attention layers, so that their lengths can differ: l f f l.
const config = parseConfig({
  model_type: 'qwen3_5_moe_text',
  hidden_size: 8,
  num_hidden_layers: 4,
  layer_types: ['linear_attention', 'full_attention', 'full_attention', 'linear_attention'],
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 4,
  vocab_size: 10,
  num_experts: 2,
  num_experts_per_tok: 1,
  moe_intermediate_size: 4,
  shared_expert_intermediate_size: 4,
  linear_num_key_heads: 1,
  linear_num_value_heads: 2,
  linear_key_head_dim: 2,
  linear_value_head_dim: 2,
  rope_parameters: { rope_theta: 1e4, partial_rotary_factor: 0.5 },
})
const CONTEXT = 16
const CONV = 3 * (2 * 1 * 2 + 2 * 2) // floats
const RECURRENT = 2 * 2 * 2
const ROW = 4

/** The bytes as the format's description has them, written by hand. */
function handMade(lengths: readonly [number, number], seed = 1): Uint8Array {
  const random = seededRandom(seed)
  const parts: ArrayBuffer[] = []
  const floats = (count: number) => {
    parts.push(Float32Array.from({ length: count }, () => 4 * random() - 2).buffer)
  }
  parts.push(Uint32Array.of(0x4d464c58, 1, 4, 2, 1, 4, CONV * 4, RECURRENT * 4).buffer)
  floats(CONV + RECURRENT)
  for (const length of lengths) {
    parts.push(Int32Array.of(length).buffer)
    floats(2 * length * ROW)
  }
  floats(CONV + RECURRENT)
  return new Uint8Array(Buffer.concat(parts.map(part => new Uint8Array(part))))
}

function codeOf(check: () => unknown): SnapshotErrorCode | 'none' {
  try {
    check()
  } catch (error) {
    return (error as SnapshotError).code
  }
  return 'none'
}

async function envelopeCodeOf(bytes: Uint8Array, fingerprint = 'print'): Promise<SnapshotErrorCode | 'none'> {
  try {
    await decodeEnvelope(bytes, { fingerprint, config })
  } catch (error) {
    return (error as SnapshotError).code
  }
  return 'none'
}

function withWord(bytes: Uint8Array, offset: number, value: number): Uint8Array {
  const copy = bytes.slice()
  new DataView(copy.buffer).setUint32(offset, value >>> 0, true)
  return copy
}

describe('MFLX version 1', () => {
  const sound = handMade([3, 3])
  const firstLength = 32 + (CONV + RECURRENT) * 4
  const secondLength = firstLength + 4 + 2 * 3 * ROW * 4

  test('a sound one passes, at any address', () => {
    expect(sound.length).toBe(snapshotSize(config, 3))
    expect(checkSnapshot(sound, config, CONTEXT)).toBe(3)
    const shifted = new Uint8Array(sound.length + 1)
    shifted.set(sound, 1)
    expect(checkSnapshot(shifted.subarray(1), config, CONTEXT)).toBe(3)
    const layers = [...decodeLayers(shifted.subarray(1), config)]
    expect(layers.map(layer => layer.kind[0]).join('')).toBe('lffl')
    expect(layers).toEqual([...decodeLayers(sound, config)])
  })

  test.each<[string, number, number, SnapshotErrorCode, object]>([
    ['magic', 0, 0x4d464c59, 'BadMagic', {}],
    ['version', 4, 2, 'BadVersion', { got: 2, want: 1 }],
    ['num_layers', 8, 5, 'ShapeMismatch', { field: 'num_layers', got: 5, want: 4 }],
    ['full_attn_interval', 12, 4, 'ShapeMismatch', { field: 'full_attn_interval', got: 4, want: 2 }],
    ['num_kv_heads', 16, 2, 'ShapeMismatch', { field: 'num_kv_heads', got: 2, want: 1 }],
    ['head_dim', 20, 8, 'ShapeMismatch', { field: 'head_dim', got: 8, want: 4 }],
    ['linear_conv_bytes', 24, 0, 'ShapeMismatch', { field: 'linear_conv_bytes' }],
    ['linear_ssm_bytes', 28, 2 ** 31, 'ShapeMismatch', { field: 'linear_ssm_bytes', got: 2 ** 31 }],
    ['a negative length', firstLength, -1, 'NegativeLength', { layer: 1, got: -1 }],
    ['a length of 2^31', firstLength, 2 ** 31, 'NegativeLength', { layer: 1, got: -(2 ** 31) }],
    ['a length past the context', firstLength, CONTEXT + 1, 'LengthOverflow', { layer: 1, want: CONTEXT }],
    ['a huge length', firstLength, 2 ** 31 - 1, 'LengthOverflow', { layer: 1 }],
    ['lengths that differ', secondLength, 2, 'LengthsDiffer', { layer: 2, got: 2, want: 3 }],
  ])('refuses %s', (_, offset, value, code, details) => {
    const bytes = withWord(sound, offset, value)
    expect(codeOf(() => checkSnapshot(bytes, config, CONTEXT))).toBe(code)
    expect(() => checkSnapshot(bytes, config, CONTEXT)).toThrow(
      expect.objectContaining({ details: expect.objectContaining(details) }),
    )
  })

  test('refuses truncation at every byte, and bytes too many', () => {
    for (let size = 0; size < sound.length; size++) {
      expect(codeOf(() => checkSnapshot(sound.slice(0, size), config, CONTEXT))).toBe('Truncated')
    }
    const longer = new Uint8Array(sound.length + 1)
    longer.set(sound)
    expect(codeOf(() => checkSnapshot(longer, config, CONTEXT))).toBe('TrailingBytes')
  })

  test('survives random bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), bytes => {
        expect(codeOf(() => checkSnapshot(bytes, config, CONTEXT))).not.toBe('none')
      }),
    )
  })
})

describe('the envelope', () => {
  const snapshot = handMade([3, 3], 7)
  const content = {
    fingerprint: 'print',
    tokens: [9, 0, 4],
    logits: Float32Array.from({ length: 10 }, Math.cos),
    snapshot,
  }

  test('brings back exactly what went in', async () => {
    const bytes = await encodeEnvelope(content, config)
    const out = await decodeEnvelope(bytes, { fingerprint: 'print', config })
    expect(out).toEqual({ ...content, tokens: Uint32Array.of(9, 0, 4) })
    const bare = await decodeEnvelope(await encodeEnvelope({ ...content, logits: null }, config), {
      fingerprint: 'print',
      config,
    })
    expect(bare.logits).toBeNull()
  })

  test.each<[EnvelopeBody, number]>([
    ['f16', 2 ** -11],
    ['bf16', 2 ** -8],
  ])('a compact body (%s) rounds K and V and nothing else', async (body, error) => {
    const bytes = await encodeEnvelope(content, config, body)
    const exact = await encodeEnvelope(content, config)
    expect(exact.length - bytes.length).toBe(2 * 2 * 3 * ROW * 2) // half of K and V of two layers
    const out = await decodeEnvelope(bytes, { fingerprint: 'print', config })
    expect(checkSnapshot(out.snapshot, config, CONTEXT)).toBe(3)
    const want = [...decodeLayers(snapshot, config)]
    for (const [i, got] of [...decodeLayers(out.snapshot, config)].entries()) {
      const wanted = want[i]
      if (got.kind === 'linear_attention' || wanted.kind === 'linear_attention') {
        expect(got).toEqual(wanted)
        continue
      }
      for (const part of ['keys', 'values'] as const) {
        got[part].forEach((value, j) => {
          expect(Math.abs(value / wanted[part][j] - 1)).toBeLessThanOrEqual(error)
        })
      }
    }
  })

  test('every flipped bit is noticed', async () => {
    for (const body of ['exact', 'f16'] as const) {
      const bytes = await encodeEnvelope(content, config, body)
      for (let bit = 0; bit < bytes.length * 8; bit++) {
        bytes[bit >> 3] ^= 1 << (bit & 7)
        const code = await envelopeCodeOf(bytes)
        if (code === 'none') expect(code, `bit ${bit}`).not.toBe('none')
        bytes[bit >> 3] ^= 1 << (bit & 7)
      }
      expect(await envelopeCodeOf(bytes)).toBe('none')
    }
  })

  test('truncation at every byte is noticed, and bytes too many', async () => {
    const bytes = await encodeEnvelope(content, config)
    for (let size = 0; size < bytes.length; size++) {
      expect(await envelopeCodeOf(bytes.slice(0, size))).toBe('Truncated')
    }
    expect(await envelopeCodeOf(Uint8Array.of(...bytes, 0))).toBe('TrailingBytes')
  })

  test("another model's state is refused as such", async () => {
    expect(await envelopeCodeOf(await encodeEnvelope(content, config), 'other')).toBe('OtherModel')
  })

  test('a sound file with the wrong number of tokens or logits is refused', async () => {
    const wrongTokens = await encodeEnvelope({ ...content, tokens: [1] }, config, 'f16')
    expect(await envelopeCodeOf(wrongTokens)).toBe('BadEnvelope')
    const wrongLogits = await encodeEnvelope({ ...content, logits: new Float32Array(3) }, config)
    expect(await envelopeCodeOf(wrongLogits)).toBe('BadEnvelope')
  })
})
