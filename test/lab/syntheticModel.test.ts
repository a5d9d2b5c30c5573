// Models of random weights for measuring: written once, taken up again, of the shape that was asked for.
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import { verifyModel } from '#moeflux/files/verify/verify.js'
import { TokenStream } from '#moeflux/lab/bench/tokenSource.js'
import { ensureSyntheticModel } from '#moeflux/lab/synthetic/syntheticModel.js'
import { parseSyntheticSpec, syntheticSpec } from '#moeflux/lab/synthetic/syntheticSpec.js'
import { TOPICS } from '#moeflux/lab/synthetic/syntheticWeights.js'
import { presets } from '#moeflux/model/presets.js'

const shape = {
  ...presets.a3b.json,
  hidden_size: 512,
  vocab_size: 1024,
  eos_token_id: [1],
  num_hidden_layers: 4,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 64,
  num_experts: 64,
  num_experts_per_tok: 4,
  moe_intermediate_size: 64,
  shared_expert_intermediate_size: 64,
  linear_num_key_heads: 2,
  linear_num_value_heads: 2,
  linear_key_head_dim: 32,
  linear_value_head_dim: 32,
}

let home: string
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'moeflux-synthetic-'))
})
afterAll(() => rmSync(home, { recursive: true, force: true }))

/** Hashes by name. */
const files = (folder: string) =>
  new Map(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => [
        entry.name,
        createHash('sha256')
          .update(readFileSync(join(entry.parentPath, entry.name)))
          .digest('hex'),
      ]),
  )

/** Routing of a token stream: [token][layer] experts. */
async function routing(folder: string, count: number): Promise<number[][][]> {
  const packed = await openPacked(await openNodeFolder(folder, { links: 'any' }))
  const { moeLayers, expertsPerToken, vocabSize } = packed.config
  const backend = await openReferenceBackend(packed, { precision: 'exact', expertsPerToken })
  const sequence = backend.createSequence()
  const stream = new TokenStream(vocabSize, 1)
  const [output] = await backend.step([{ sequence, tokens: stream.take(count), output: 'last', phase: 'prompt' }], {
    routing: true,
  })
  expect(output.logits?.every(Number.isFinite)).toBe(true)
  const experts = output.routing as Uint16Array
  const at = (token: number, layer: number) => (layer * count + token) * expertsPerToken
  const trace = Array.from({ length: count }, (_, token) =>
    Array.from(moeLayers, (_, layer) => [...experts.subarray(at(token, layer), at(token, layer) + expertsPerToken)]),
  )
  await backend.close()
  await packed.close()
  return trace
}

/** The share of a token's experts that the token before used too, and that of the busiest tenth. */
function unevenness(trace: number[][][]): { repeated: number; busiest: number } {
  let repeated = 0
  const uses = new Map<string, number>()
  trace.forEach((layers, token) => {
    layers.forEach((set, layer) => {
      for (const expert of set) {
        if (token > 0 && trace[token - 1][layer].includes(expert)) repeated++
        uses.set(`${layer}:${expert}`, (uses.get(`${layer}:${expert}`) ?? 0) + 1)
      }
    })
  })
  const total = trace.length * trace[0].length * trace[0][0].length
  const sorted = [...uses.values()].sort((a, b) => b - a)
  const tenth = Math.round((trace[0].length * 64) / 10)
  return { repeated: repeated / total, busiest: sorted.slice(0, tenth).reduce((a, b) => a + b, 0) / total }
}

describe('synthetic models', () => {
  test('are the same bytes for the same seed, are written once, and differ for another seed', async () => {
    const spec = syntheticSpec('same', shape, 4, 1, 1)
    const first = await ensureSyntheticModel(spec, join(home, 'a'))
    const second = await ensureSyntheticModel(spec, join(home, 'b'))
    expect(files(first)).toEqual(files(second))
    expect(await ensureSyntheticModel(spec, join(home, 'a'))).toBe(first)
    const other = files(await ensureSyntheticModel(syntheticSpec('other', shape, 4, 1, 2), join(home, 'a')))
    expect(other.get('layer_00.bin')).not.toEqual(files(first).get('layer_00.bin'))
  })

  test('have checksums of their experts, and verify claims nothing of the rest', async () => {
    const folder = await ensureSyntheticModel(syntheticSpec('same', shape, 4, 1, 1), join(home, 'a'))
    const { compared, uncompared, problems } = await verifyModel(await openNodeFolder(folder, { links: 'any' }))
    expect(problems).toEqual([])
    expect(compared.map(file => [file.name, file.with])).toEqual([
      ['packed_experts.sums', 'sha256'],
      ...[0, 1, 2, 3].map(layer => [`packed_experts/layer_0${layer}.bin`, 'blocks']),
    ])
    expect(uncompared.map(file => file.name)).toEqual(['config.json', 'model_weights.bin', 'model_weights.json'])
  })

  test.each([2, 4, 8] as const)('open with experts of %i bits and evaluate to finite numbers', async bits => {
    const folder = await ensureSyntheticModel(syntheticSpec(`bits${bits}`, shape, bits, 1, 1), home)
    expect(await routing(folder, 4)).toHaveLength(4)
  })

  test.each(['qwen3.5-4b', 'qwen3-30b-a3b', 'qwen3-coder-next', 'glm-4.5-air', 'gpt-oss-20b'] as const)(
    'of the family of %s open and evaluate to finite numbers',
    async name => {
      const small = { hidden_size: 128, vocab_size: 512, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 32 }
      const widths = { intermediate_size: 192, moe_intermediate_size: 64, shared_expert_intermediate_size: 64 }
      const linear = { linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 32 }
      const json = { ...presets[name].json, ...small, ...widths, ...linear, linear_value_head_dim: 32 }
      const counts = { num_hidden_layers: 4, num_experts: 8, n_routed_experts: 8, num_local_experts: 8 }
      const spec = syntheticSpec(name, { ...json, ...counts, num_experts_per_tok: 4 }, 4, 1, 1)
      const folder = await ensureSyntheticModel(spec, home)
      const { problems } = await verifyModel(await openNodeFolder(folder, { links: 'any' }))
      expect(problems).toEqual([])
      expect(await routing(folder, 4)).toHaveLength(4)
    },
  )

  test('route evenly without skew, and unevenly and alike from token to token with it', async () => {
    const even = unevenness(await routing(await ensureSyntheticModel(syntheticSpec('even', shape, 4, 0, 1), home), 160))
    const uneven = unevenness(
      await routing(await ensureSyntheticModel(syntheticSpec('uneven', shape, 4, 2, 1), home), 160),
    )
    expect(even.repeated).toBeLessThan(0.11) // by chance: 4 / 64
    expect(even.busiest).toBeLessThan(0.25)
    expect(uneven.repeated).toBeGreaterThan(0.2)
    expect(uneven.busiest).toBeGreaterThan(0.3)
  })

  test('are named by what they are, and refuse what cannot be', () => {
    expect(parseSyntheticSpec('a3b:8').name).toBe('a3b-8l-256e-4bit-skew1-seed1')
    expect(parseSyntheticSpec('a17b:60', { experts: 16 }).config).toMatchObject({ numLayers: 60, numExperts: 16 })
    for (const bad of ['b3a', 'a3b:', 'a3b:0', 'a3b:1.5', 'a3b:8:8', '__proto__']) {
      expect(() => parseSyntheticSpec(bad)).toThrow('synthetic')
    }
    expect(() => parseSyntheticSpec('a3b:8', { experts: 4 })).toThrow('at least the 8')
    expect(parseSyntheticSpec('glm-4.5-air:3', { experts: 16 }).config).toMatchObject({
      moeLayers: [1, 2],
      numExperts: 16,
    })
    expect(() => parseSyntheticSpec('qwen3.5-4b:4', { experts: 4 })).toThrow('has no experts')
  })
})

describe('token stream', () => {
  test('stays on a topic for a while, and is the same for the same seed', () => {
    const tokens = new TokenStream(4096, 3).take(500)
    expect(new TokenStream(4096, 3).take(500)).toEqual(tokens)
    const stays = tokens.filter((token, i) => i > 0 && token % TOPICS === tokens[i - 1] % TOPICS).length
    expect(stays / tokens.length).toBeGreaterThan(0.9)
    expect(Math.max(...tokens)).toBeLessThan(4096)
  })
})
