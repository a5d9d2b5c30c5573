// Converting whole folders: what lands where, bit for bit.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { blocksOf, parseChecksums } from '#moeflux/files/packed/blockChecksums.js'
import { blockHash } from '#moeflux/files/packed/blockHash.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import type { Matrix } from '#moeflux/model/tensors.js'
import {
  demoSource,
  hashFolder,
  matrixValues,
  readFloatTensors,
  repository,
  temporaryFolder,
  tinyFusedSource,
  tinySource,
  vectorValues,
} from '../support/models/packedFiles.js'
import { gatedMoe } from '../support/wasm/gatedMoe.js'

async function withPacked<T>(folder: string, use: (model: PackedModel) => T | Promise<T>): Promise<T> {
  const model = await openPacked(await openNodeFolder(folder, { links: 'any' }))
  try {
    return await use(model)
  } finally {
    await model.close()
  }
}

const weightsOf = (folder: string) => new Uint8Array(readFileSync(join(folder, 'model_weights.bin')))

describe('the MLX demo model', () => {
  test('holds the reference values of its goldens, bit for bit', async () => {
    const folder = temporaryFolder()
    await packFolder(demoSource, folder)
    const goldens = await readFloatTensors(join(repository, 'test/data/goldens/demo.safetensors'))
    const weights = weightsOf(folder)
    await withPacked(folder, ({ tensors, experts }) => {
      const layers = tensors.layers
      const rows = (matrix: Matrix, from: number, count: number, bytes = weights) =>
        matrixValues(matrix, bytes).subarray(from * matrix.cols, (from + count) * matrix.cols)
      const expertBytes = (layer: number, expert: number) => {
        const file = readFileSync(join(folder, `packed_experts/layer_0${layer}.bin`))
        const { expertSize } = experts.layout
        return new Uint8Array(file.subarray(expert * expertSize, (expert + 1) * expertSize))
      }
      const check = (name: string, got: Float32Array) => {
        const want = goldens.get(`check.${name}`)
        expect(want, name).toBeDefined()
        expect([...got], name).toEqual([...want!])
      }
      const [linear, full] = [layers[0].mixer, layers[3].mixer]
      if (linear.kind !== 'linear_attention' || full.kind !== 'full_attention') throw new Error('layer kinds')
      check('model.embed_tokens.weight', rows(tensors.embed, 0, 4))
      check('lm_head.weight', rows(tensors.lmHead, 100, 4))
      check('model.layers.0.linear_attn.in_proj_qkv.weight', rows(linear.inProjQkv, 0, 4))
      check('model.layers.0.linear_attn.in_proj_a.weight', rows(linear.inProjA, 0, 4))
      check('model.layers.0.linear_attn.conv1d.weight', vectorValues(linear.conv, weights).subarray(0, 32))
      check('model.layers.3.self_attn.q_proj.weight', rows(full.qProj, 60, 8))
      check('model.layers.5.mlp.gate.weight', rows(gatedMoe(layers[5]).router, 0, 32))
      check('model.layers.5.mlp.shared_expert_gate.weight', rows(gatedMoe(layers[5]).sharedGate, 0, 1))
      check('model.layers.1.mlp.shared_expert.down_proj.weight', rows(gatedMoe(layers[1]).sharedExpert.down, 0, 4))
      check(
        'model.norm.weight',
        vectorValues(tensors.norm, weights).map(w => w - 1),
      )
      const { gate, up, down } = experts.layout
      const expert = expertBytes(2, 7)
      const fused = new Float32Array([...rows(gate, 126, 2, expert), ...rows(up, 0, 2, expert)])
      check('model.layers.2.mlp.experts.gate_up_proj', fused)
      check('model.layers.6.mlp.experts.down_proj', rows(down, 0, 4, expertBytes(6, 31)))
    })
  })

  test('converted twice gives identical bytes', async () => {
    const [first, second] = [temporaryFolder(), temporaryFolder()]
    await packFolder(demoSource, first)
    await packFolder(demoSource, second)
    expect(hashFolder(first)).toEqual(hashFolder(second))
  })
})

test('every block of every large file has its checksum, in all sets of experts', async () => {
  const folder = temporaryFolder()
  await packFolder(tinySource, folder, { experts2bit: true })
  const { files } = JSON.parse(readFileSync(join(folder, 'moeflux.json'), 'utf8'))
  for (const [name, large] of [
    ['packed_experts.sums', [0, 1, 2, 3].map(layer => `packed_experts/layer_0${layer}.bin`)],
    ['packed_experts_2bit.sums', [0, 1, 2, 3].map(layer => `packed_experts_2bit/layer_0${layer}.bin`)],
    ['model_weights.sums', ['model_weights.bin']],
  ] as const) {
    expect(files[name].size).toBe(readFileSync(join(folder, name)).length)
    const records = large.length === 1 ? 1 : 8
    const recordBytes = files[large[0]].size / records
    const table = parseChecksums(readFileSync(join(folder, name)), { files: large.length, records, recordBytes }, name)
    for (const [i, file] of large.entries()) {
      const bytes = readFileSync(join(folder, file))
      let end = 0
      for (const { at, size, sum } of blocksOf(table, i, 0, bytes.length)) {
        expect(at).toBe(end)
        expect(blockHash(bytes.subarray(at, at + size)), `${file} at ${at}`).toBe(sum)
        end = at + size
      }
      expect(end).toBe(bytes.length)
    }
  }
})

describe('the HF tiny model', () => {
  test.each([4, 8, 16] as const)('gives the same weights from both expert layouts at %i bits', async bits => {
    const [single, fused] = [temporaryFolder(), temporaryFolder()]
    await packFolder(tinySource, single, { bits, experts2bit: true })
    await packFolder(tinyFusedSource, fused, { bits, experts2bit: true })
    const weights = (folder: string) => new Map([...hashFolder(folder)].filter(([name]) => name.endsWith('.bin')))
    expect(weights(single)).toEqual(weights(fused))
    expect(weights(single).size).toBe(9) // four layers of two sets, and the resident part
    const prints = [await withPacked(single, m => m.fingerprint), await withPacked(fused, m => m.fingerprint)]
    expect(prints[0]).toBe(prints[1])
  })
})
