// The same checkpoints in every form that people have them in pack to the same values.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type PackOptions, packFolder } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import { verifyModel } from '#moeflux/files/verify/verify.js'
import { type FamilyName, familyConfig, familyNames, keptWeights, writeFamily } from '../support/models/families.js'
import { bfloat16Experts, familyTensors, ggufForm, mlxForm, mlxMxfp4Experts } from '../support/models/familyForms.js'
import { temporaryFolder, tensorValues } from '../support/models/packedFiles.js'
import { writeSource } from '../support/models/tinyModel.js'

/** All values of a packed model: of tensors by name, of experts by layer and number. */
async function packedValues(source: string, options: PackOptions): Promise<Map<string, Float32Array>> {
  const folder = join(temporaryFolder(), 'packed')
  await packFolder(source, folder, options)
  const listed = await openNodeFolder(folder, { links: 'any' })
  expect((await verifyModel(listed)).problems).toEqual([])
  const { config, tensors, experts, close } = await openPacked(listed)
  const values = tensorValues(tensors, readFileSync(join(folder, 'model_weights.bin')))
  for (const [place, layer] of config.moeLayers.entries()) {
    const name = `packed_experts/layer_0${layer}.bin`
    const file = readFileSync(join(folder, name))
    const layout = experts.layouts[place]
    for (let expert = 0; expert < config.numExperts; expert++) {
      const record = new Uint8Array(file.subarray(expert * layout.expertSize, (expert + 1) * layout.expertSize))
      for (const [part, floats] of tensorValues(layout, record)) values.set(`${name} ${expert} ${part}`, floats)
    }
  }
  await close()
  return values
}

const original = (name: FamilyName) => packedValues(writeFamily(name, join(temporaryFolder(), name)), keptWeights(name))

/** `loose`: what was rounded on the way there and back. */
function expectSame(got: Map<string, Float32Array>, want: Map<string, Float32Array>, loose?: RegExp): void {
  expect([...got.keys()]).toEqual([...want.keys()])
  for (const [name, values] of got) {
    if (!loose?.test(name)) expect(values, name).toEqual(want.get(name))
    else for (const [i, value] of values.entries()) expect(value, name).toBeCloseTo(want.get(name)![i], 5)
  }
}

const others = (names: readonly FamilyName[]) => familyNames.filter(name => !names.includes(name))

test.each(others(['gpt_oss']))('%s from an MLX folder', async name => {
  const source = writeSource(join(temporaryFolder(), name), mlxForm(name), {
    config: familyConfig(name),
    format: 'mlx',
  })
  expectSame(await packedValues(source, { bits: 16 }), await original(name))
})

test('gpt_oss from an MLX folder, its experts in MXFP4', async () => {
  const { quantization_config: _, ...config } = familyConfig('gpt_oss')
  const source = writeSource(join(temporaryFolder(), 'a'), mlxMxfp4Experts(familyTensors('gpt_oss')), {
    config: { ...config, quantization: { group_size: 32, bits: 4, mode: 'mxfp4' } },
    format: 'mlx',
  })
  expectSame(await packedValues(source, {}), await original('gpt_oss'))
})

test.each(['qwen3_moe', 'qwen3_next', 'glm4_moe', 'gpt_oss'] as const)('%s from a GGUF file', async name => {
  const path = join(temporaryFolder(), `${name}.gguf`)
  writeFileSync(path, ggufForm(name))
  expectSame(await packedValues(path, keptWeights(name)), await original(name), /A_log/)
})

describe('qwen3_5', () => {
  const config = { model_type: 'qwen3_5', text_config: familyConfig('qwen3_5') }
  const renamed = () =>
    [...familyTensors('qwen3_5')].map(
      ([key, tensor]) => [key.replace(/^model\./, 'model.language_model.'), tensor] as const,
    )
  const extra = { dtype: 'BF16', shape: [2], data: new Uint8Array(4) }

  test('as a multimodal checkpoint, with vision and MTP tensors beside it', async () => {
    const tensors = new Map([...renamed(), ['model.visual.patch', extra] as const, ['mtp.norm.weight', extra] as const])
    const source = writeSource(join(temporaryFolder(), 'a'), tensors, { config })
    expectSame(await packedValues(source, { bits: 16 }), await original('qwen3_5'))
  })

  test('tied: the head is the embedding', async () => {
    const tied = { ...config, text_config: { ...config.text_config, tie_word_embeddings: true } }
    const tensors = new Map(renamed().filter(([key]) => key !== 'lm_head.weight'))
    const source = writeSource(join(temporaryFolder(), 'a'), tensors, {
      config: tied,
    })
    const want = await original('qwen3_5')
    want.delete('lm_head')
    expectSame(await packedValues(source, { bits: 16 }), want)
  })
})

test('gpt_oss with experts as floats, input first', async () => {
  const { quantization_config: _, ...config } = familyConfig('gpt_oss')
  const source = writeSource(join(temporaryFolder(), 'a'), bfloat16Experts(familyTensors('gpt_oss')), { config })
  expectSame(await packedValues(source, { bits: 16 }), await original('gpt_oss'))
})
