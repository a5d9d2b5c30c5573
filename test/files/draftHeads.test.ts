// Heads for drafts on their way from a checkpoint into a packed folder: from Hugging Face and MLX folders and from GGUF files, and heads
// that were left in more bits than the model has.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { tinyGguf, tinyGgufMetadata, tinyGgufTensors } from '../support/models/ggufModel.js'
import { u32 } from '../support/models/ggufWriter.js'
import { addHead } from '../support/models/headedModel.js'
import { temporaryFolder, tensorValues } from '../support/models/packedFiles.js'
import { type Tensors, tinyConfig, tinyTensors, toMlx, valuesOf, writeSource } from '../support/models/tinyModel.js'

const HEAD_LAYER = 4
const FULL_LAYER = 3 // whose values the head gets, doubled

const withHead = () => addHead(tinyTensors(), FULL_LAYER)

const config = () => ({ ...tinyConfig(), mtp_num_hidden_layers: 1 })

async function packed<T>(folder: string, use: (model: PackedModel) => T): Promise<T> {
  const model = await openPacked(await openNodeFolder(folder, { links: 'any' }))
  try {
    return use(model)
  } finally {
    await model.close()
  }
}

const experts = (folder: string, layer: number) => readFileSync(join(folder, `packed_experts/layer_0${layer}.bin`))
const values = (folder: string) =>
  packed(folder, ({ tensors }) => tensorValues(tensors, readFileSync(join(folder, 'model_weights.bin'))))

/** Arrays of this size are slow to compare one by one. */
const same = (a: Float32Array | undefined, b: Float32Array | undefined) =>
  a !== undefined && b !== undefined && Buffer.from(a.buffer).equals(Buffer.from(b.buffer))

test('of Hugging Face folders and of GGUF files are the same, and are what the checkpoint holds', async () => {
  const [hf, gguf, plain] = ['hf', 'gguf', 'plain'].map(name => join(temporaryFolder(), name))
  await packFolder(writeSource(join(temporaryFolder(), 'source'), withHead(), { config: config() }), hf, { bits: 16 })
  await packFolder(writeSource(join(temporaryFolder(), 'source'), tinyTensors()), plain, { bits: 16 })
  const metadata = tinyGgufMetadata.map(([key, value]) => [key, key.endsWith('block_count') ? u32(5) : value] as const)
  const path = join(temporaryFolder(), 'tiny.gguf')
  const nextn = ['qwen35moe.nextn_predict_layers', u32(1)] as const
  writeFileSync(path, tinyGguf({ metadata: [...metadata, nextn], tensors: tinyGgufTensors(withHead()) }))
  await packFolder(path, gguf, { bits: 16 })

  for (const folder of [hf, gguf]) {
    await packed(folder, ({ config }) => {
      expect(config.numLayers).toBe(4)
      expect(config.draftHead?.mixer.kind).toBe('full_attention')
      expect(config.expertLayers).toEqual([0, 1, 2, 3, 4])
    })
    for (const layer of [0, 1, 2, 3]) expect(experts(folder, layer).equals(experts(plain, layer))).toBe(true)
  }
  expect(experts(gguf, HEAD_LAYER).equals(experts(hf, HEAD_LAYER)), 'experts of the head').toBe(true)
  const halves = (bytes: Buffer) => new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2)
  const [own, doubled] = [halves(experts(hf, FULL_LAYER)), halves(experts(hf, HEAD_LAYER))]
  expect(
    doubled.every((bits, i) => bits === own[i] || bits === own[i] + 0x80),
    'one exponent more, or zero',
  ).toBe(true)

  const [ofHf, ofGguf, ofPlain] = [await values(hf), await values(gguf), await values(plain)]
  expect([...ofGguf.keys()]).toEqual([...ofHf.keys()])
  const ofHead = [...ofHf.keys()].filter(name => !ofPlain.has(name))
  expect(ofHead.length).toBeGreaterThan(15)
  for (const name of ofHead) expect(same(ofGguf.get(name), ofHf.get(name)), name).toBe(true)
  const table = withHead()
  expect(same(ofHf.get('mtp.fc'), valuesOf(table.get('mtp.fc.weight')!))).toBe(true)
  expect(ofHf.get('mtp.norm.weight')).toEqual(valuesOf(table.get('mtp.norm.weight')!).map(value => value + 1))
})

test('in 16 bits beside experts of 4 get no more than these: all records stay as large as they are', async () => {
  const bits = 4
  const format = { bits, group: 64, scaleType: 'BF16' } as const
  const settings = { config: { ...config(), quantization: { bits, group_size: 64 } }, format: 'mlx' }
  const pack = async (tensors: Tensors) => {
    const mlx = toMlx(tensors, name => (name.startsWith('mtp.') ? null : format))
    const folder = join(temporaryFolder(), 'packed')
    await packFolder(writeSource(join(temporaryFolder(), 'source'), mlx, settings), folder)
    return folder
  }
  const [folder, plain] = [await pack(withHead()), await pack(tinyTensors())]
  const sizeOf = (at: string) => packed(at, model => model.experts.layout.expertSize)
  expect(await sizeOf(folder)).toBe(await sizeOf(plain))
  for (const layer of [0, 1, 2, 3]) expect(experts(folder, layer).equals(experts(plain, layer))).toBe(true)
  await packed(folder, model => {
    expect(model.experts.layouts[HEAD_LAYER].gate).toMatchObject({ kind: 'quantized', bits })
    expect(model.config.draftHead).not.toBeNull()
  })
})
