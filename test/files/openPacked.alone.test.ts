// Opening packed folders, good and bad, and converting the variants of sources that are out there.
import { cpSync, existsSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { MoefluxError, ReadError } from '#moeflux/base/errors.js'
import type { ConvertOptions } from '#moeflux/files/convert/convert.js'
import { packFolder, packInto } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { parseManifest, parseMetadata } from '#moeflux/files/packed/manifest.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import type { Folder } from '#moeflux/files/source.js'
import { verifyModel } from '#moeflux/files/verify/verify.js'
import type { Matrix } from '#moeflux/model/tensors.js'
import { matrixValues, temporaryFolder, tinySource, vectorValues } from '../support/models/packedFiles.js'
import {
  floatTensor,
  type MlxFormat,
  type Tensors,
  tinyConfig,
  tinyTensors,
  toMlx,
  valuesOf,
  writeSource,
} from '../support/models/tinyModel.js'
import { gatedMoe } from '../support/wasm/gatedMoe.js'

async function open(folder: string, options?: { expertBits?: 2 }): Promise<PackedModel> {
  return openPacked(await openNodeFolder(folder, { links: 'any' }), options)
}

async function withModel<T>(folder: string, use: (model: PackedModel) => T, options?: { expertBits?: 2 }): Promise<T> {
  const model = await open(folder, options)
  try {
    return use(model)
  } finally {
    await model.close()
  }
}

/** Writes a source, packs it, and returns the packed folder. */
async function pack(tensors: Tensors, config?: unknown, options?: ConvertOptions & { shards?: number }) {
  const root = temporaryFolder()
  const source = writeSource(join(root, 'source'), tensors, { config, shards: options?.shards })
  await packFolder(source, join(root, 'packed'), options)
  return join(root, 'packed')
}

const weightsOf = (folder: string) => new Uint8Array(readFileSync(join(folder, 'model_weights.bin')))

function expertValues(folder: string, model: PackedModel, layer: number, expert: number, matrix: Matrix) {
  const file = readFileSync(join(folder, `packed_experts/layer_0${layer}.bin`))
  const { expertSize } = model.experts.layout
  return matrixValues(matrix, new Uint8Array(file.subarray(expert * expertSize, (expert + 1) * expertSize)))
}

const tiny = tinyTensors()
const values = (name: string) => valuesOf(tiny.get(name)!)

let packed4: string // 4-bit, for tests that only damage copies of it

beforeAll(async () => {
  const { mkdtempSync } = await import('node:fs')
  const { tmpdir } = await import('node:os')
  packed4 = mkdtempSync(join(tmpdir(), 'moeflux-test-'))
  await packFolder(tinySource, packed4)
  return () => rmSync(packed4, { recursive: true, force: true })
})

function damagedCopy(damage: (folder: string) => void): string {
  const folder = temporaryFolder()
  cpSync(packed4, folder, { recursive: true })
  damage(folder)
  return folder
}

// biome-ignore lint/suspicious/noExplicitAny: tests break JSON files in ways that no type allows
function editJson(folder: string, name: string, edit: (json: any) => void): void {
  const path = join(folder, name)
  const json = JSON.parse(readFileSync(path, 'utf8'))
  edit(json)
  writeFileSync(path, JSON.stringify(json))
}

describe('a damaged packed folder is refused at open', () => {
  const manifest = (edit: (tensors: Record<string, Record<string, unknown>>) => void) => (folder: string) =>
    editJson(folder, 'model_weights.json', json => edit(json.tensors))
  const moeflux = (edit: (json: Record<string, never>) => void) => (folder: string) =>
    editJson(folder, 'moeflux.json', edit)
  const textConfig = (edit: (config: Record<string, unknown>) => void) => (folder: string) =>
    editJson(folder, 'config.json', edit)
  const norm = 'model.layers.0.input_layernorm.weight'
  const router = 'model.layers.1.mlp.gate'
  // biome-ignore lint/suspicious/noExplicitAny: see above
  const parts = (edit: (parts: any[]) => void) => moeflux(json => edit((json as any).experts.packed_experts.parts))

  const cases: readonly (readonly [what: string, code: string, damage: (folder: string) => void])[] = [
    ['no config.json', 'MODEL_NOT_FOUND', folder => rmSync(join(folder, 'config.json'))],
    ['config.json is not JSON', 'BAD_JSON', folder => writeFileSync(join(folder, 'config.json'), '{')],
    ['config.json is not UTF-8', 'BAD_UTF8', folder => writeFileSync(join(folder, 'config.json'), Uint8Array.of(0xff))],
    [
      '100,000 brackets in config.json',
      'JSON_TOO_DEEP',
      folder => writeFileSync(join(folder, 'config.json'), '['.repeat(1e5)),
    ],
    ['config.json is a list', 'BAD_JSON', folder => writeFileSync(join(folder, 'config.json'), '[]')],
    ...['[]', 'null', '3', '{'].map(
      text =>
        [
          `generation_config.json is ${text}`,
          'BAD_JSON',
          (folder: string) => writeFileSync(join(folder, 'generation_config.json'), text),
        ] as const,
    ),
    ['K > experts', 'UNSUPPORTED_MODEL', textConfig(config => (config.num_experts_per_tok = 9))],
    ['zero layers', 'UNSUPPORTED_MODEL', textConfig(config => (config.num_hidden_layers = 0))],
    ['no manifest', 'MODEL_NOT_FOUND', folder => rmSync(join(folder, 'model_weights.json'))],
    ['a manifest without tensors', 'BAD_FIELD', folder => writeFileSync(join(folder, 'model_weights.json'), '{}')],
    ['a missing tensor', 'BAD_TENSOR', manifest(tensors => delete tensors[norm])],
    ['missing scales', 'BAD_TENSOR', manifest(tensors => delete tensors[`${router}.scales`])],
    ['another shape', 'BAD_TENSOR', manifest(tensors => (tensors[norm].shape = [127]))],
    ['another matrix shape', 'BAD_TENSOR', manifest(tensors => (tensors[`${router}.weight`].shape = [8, 16]))],
    ['another size', 'BAD_TENSOR', manifest(tensors => (tensors[norm].size = 4))],
    ['a tensor past its file', 'BAD_TENSOR', manifest(tensors => (tensors[norm].offset = 2 ** 40))],
    ['negative offset', 'BAD_NUMBER', manifest(tensors => (tensors[norm].offset = -64))],
    ['fractional offset', 'BAD_NUMBER', manifest(tensors => (tensors[norm].offset = 0.5))],
    ['offset 1e308', 'BAD_NUMBER', manifest(tensors => (tensors[norm].offset = 1e308))],
    ['string offset', 'BAD_NUMBER', manifest(tensors => (tensors[norm].offset = '0'))],
    ['unknown dtype', 'BAD_TENSOR', manifest(tensors => (tensors[norm].dtype = 'F8_E4M3'))],
    ['3 bits', 'BAD_TENSOR', manifest(tensors => (tensors[`${router}.weight`].bits = 3))],
    ['groups of 48', 'BAD_TENSOR', manifest(tensors => (tensors[`${router}.weight`].group_size = 48))],
    ['F32 scales', 'BAD_TENSOR', manifest(tensors => (tensors[`${router}.scales`].dtype = 'F32'))],
    ['biases of another type', 'BAD_TENSOR', manifest(tensors => (tensors[`${router}.biases`].dtype = 'F16'))],
    ['cut weights', 'BAD_TENSOR', folder => truncateSync(join(folder, 'model_weights.bin'), 1000)],
    ['no weights', 'READ_FAILED', folder => rmSync(join(folder, 'model_weights.bin'))],
    ['a missing expert file', 'READ_FAILED', folder => rmSync(join(folder, 'packed_experts/layer_03.bin'))],
    ['a cut expert file', 'BAD_TENSOR', folder => truncateSync(join(folder, 'packed_experts/layer_02.bin'), 4096)],
    ['another format version', 'UNKNOWN_VERSION', moeflux(json => Object.assign(json, { format: 2 }))],
    ['a part too few', 'BAD_TENSOR', parts(list => list.pop())],
    ['parts that overlap', 'BAD_TENSOR', parts(list => (list[1].offset -= 64))],
    ['a part of another size', 'BAD_TENSOR', parts(list => (list[8].size += 2))],
    ['a part of another shape', 'BAD_TENSOR', parts(list => (list[0].shape = [63, 16]))],
    ['a part of unknown kind', 'BAD_FIELD', parts(list => (list[0].kind = '__proto__'))],
    [
      'a bad checksum field',
      'BAD_FIELD',
      moeflux(json => Object.assign(json, { files: { a: { size: 1, sha256: 'x' } } })),
    ],
    [
      'an unfinished conversion',
      'UNFINISHED',
      folder => {
        writeFileSync(join(folder, 'converting.json'), '{}')
        rmSync(join(folder, 'moeflux.json'))
      },
    ],
  ]
  test.each(cases)('%s: %s', async (_, code, damage) => {
    const error = await open(damagedCopy(damage)).catch(error => error)
    expect(error).toBeInstanceOf(MoefluxError)
    expect(error.code).toBe(code)
    expect(error.message).not.toMatch(/\n/)
  })

  test('a cut file is named', async () => {
    const cut = (name: string) => damagedCopy(folder => truncateSync(join(folder, name), 0))
    const experts = cut('packed_experts/layer_00.bin')
    const error = await open(experts).catch(error => error)
    expect(error.message.startsWith(`${join(experts, 'packed_experts/layer_00.bin')}: has 0 bytes, want `)).toBe(true)
    const weights = cut('model_weights.bin')
    await expect(open(weights)).rejects.toThrow(`past the 0 bytes of ${join(weights, 'model_weights.bin')}`)
  })

  test('a 2-bit set that is not there is a bad option', async () => {
    await expect(open(packed4, { expertBits: 2 })).rejects.toMatchObject({ code: 'BAD_OPTION' })
  })

  test('random and mutated JSON gives a table or a typed error', () => {
    const texts = ['model_weights.json', 'moeflux.json'].map(name => readFileSync(join(packed4, name), 'utf8'))
    const edit = fc.tuple(fc.nat(), fc.nat(6), fc.string({ maxLength: 4 }))
    fc.assert(
      fc.property(fc.array(edit, { minLength: 1, maxLength: 3 }), fc.string(), (edits, random) => {
        for (const [i, parse] of [parseManifest, parseMetadata].entries()) {
          let text = texts[i]
          for (const [at, drop, insert] of edits) {
            const where = at % text.length
            text = text.slice(0, where) + insert + text.slice(where + drop)
          }
          for (const input of [text, random]) {
            try {
              parse(input, 'x')
            } catch (error) {
              if (!(error instanceof MoefluxError)) throw error
            }
          }
        }
      }),
      { numRuns: 100 },
    )
  })
})

describe('folders packed by others', () => {
  test('have no moeflux.json: experts are 4-bit in groups of 64', async () => {
    const folder = damagedCopy(copy => rmSync(join(copy, 'moeflux.json')))
    const [own, foreign] = [await open(packed4), await open(folder)]
    expect(foreign.experts.layout).toEqual(own.experts.layout)
    expect(foreign.tensors).toEqual(own.tensors)
    expect(foreign.fingerprint).toMatch(/^[0-9a-f]{64}$/)
    await Promise.all([own.close(), foreign.close()])
    const report = await verifyModel(await openNodeFolder(folder, { links: 'any' }))
    expect(report).toMatchObject({ compared: [], problems: [] })
  })

  test('NaN scales in them are found by verify', async () => {
    const folder = damagedCopy(copy => rmSync(join(copy, 'moeflux.json')))
    const { offset, expertSize } = await withModel(folder, model => {
      const { layout } = model.experts
      if (layout.up.kind !== 'quantized') throw new Error('not quantized')
      return { offset: layout.up.scales.offset, expertSize: layout.expertSize }
    })
    const path = join(folder, 'packed_experts/layer_02.bin')
    const bytes = readFileSync(path)
    bytes.writeUInt16LE(0x7fc0, 5 * expertSize + offset + 6)
    writeFileSync(path, bytes)
    const { problems } = await verifyModel(await openNodeFolder(folder, { links: 'any' }))
    expect(problems.map(problem => problem.code)).toEqual(['NON_FINITE'])
    expect(problems[0].message).toContain('layer_02.bin')
  })

  test('the fingerprint knows weights and shapes, and neither names nor places', async () => {
    const print = (folder: string) => withModel(folder, model => model.fingerprint)
    const own = await print(packed4)
    expect(await print(damagedCopy(copy => editJson(copy, 'moeflux.json', json => (json.model = 'other'))))).toBe(own)
    const otherTheta = damagedCopy(copy =>
      editJson(copy, 'config.json', json => (json.rope_parameters.rope_theta = 20000)),
    )
    expect(await print(otherTheta)).not.toBe(own)
    const changed = tinyTensors()
    const down = changed.get('model.layers.2.mlp.experts.3.down_proj.weight')!
    changed.set(
      'model.layers.2.mlp.experts.3.down_proj.weight',
      floatTensor(
        'BF16',
        down.shape,
        valuesOf(down).map(w => -w),
      ),
    )
    expect(await print(await pack(changed))).not.toBe(own)
  })
})

describe('sources', () => {
  test('at 16 bits every value is the source’s, norms with their 1, A_log as F32', async () => {
    const folder = await pack(tiny, undefined, { bits: 16, shards: 3 })
    const weights = weightsOf(folder)
    await withModel(folder, model => {
      const { tensors } = model
      expect(matrixValues(tensors.embed, weights)).toEqual(values('model.embed_tokens.weight'))
      const linear = tensors.layers[1].mixer
      if (linear.kind !== 'linear_attention') throw new Error('layer kind')
      expect(linear.aLog.type).toBe('F32')
      expect(vectorValues(linear.aLog, weights)).toEqual(values('model.layers.1.linear_attn.A_log'))
      expect(vectorValues(linear.norm, weights)).toEqual(values('model.layers.1.linear_attn.norm.weight'))
      expect(vectorValues(linear.conv, weights)).toEqual(values('model.layers.1.linear_attn.conv1d.weight'))
      const norm = values('model.layers.1.input_layernorm.weight').map(w => Math.fround(1 + w))
      expect(vectorValues(tensors.layers[1].inputNorm, weights)).toEqual(norm)
      const { layout } = model.experts
      for (const projection of ['gate', 'up', 'down'] as const) {
        const want = values(`model.layers.3.mlp.experts.5.${projection}_proj.weight`)
        expect(expertValues(folder, model, 3, 5, layout[projection])).toEqual(want)
      }
    })
  })

  test('the float type of a source does not matter where its values are the same', async () => {
    const as = (type: 'F16' | 'F32') =>
      new Map([...tiny].map(([name, tensor]) => [name, floatTensor(type, tensor.shape, valuesOf(tensor))]))
    const experts = (folder: string) => readFileSync(join(folder, 'packed_experts/layer_00.bin'))
    const want = readFileSync(join(packed4, 'packed_experts/layer_00.bin'))
    expect(experts(await pack(as('F32'))).equals(want)).toBe(true)
    const plain = await pack(as('F32'), undefined, { bits: 16 })
    await withModel(plain, ({ tensors: { embed, layers } }) => {
      expect(embed).toMatchObject({ kind: 'plain', type: 'BF16' })
      const { mixer } = layers[2]
      if (mixer.kind !== 'linear_attention') throw new Error('layer kind')
      const got = vectorValues(mixer.aLog, weightsOf(plain))
      expect(got).toEqual(values('model.layers.2.linear_attn.A_log'))
    })
    expect(experts(plain).equals(experts(await pack(tiny, undefined, { bits: 16 })))).toBe(true)
    const half = await pack(as('F16'), undefined, { bits: 16 })
    await withModel(half, model => expect(model.tensors.embed).toMatchObject({ kind: 'plain', type: 'F16' }))
  })

  test('groups of 32 and 128 and other bits are what was asked for', async () => {
    const folder = await pack(tiny, undefined, { bits: 8, groupSize: 32 })
    await withModel(folder, model => {
      expect(gatedMoe(model.tensors.layers[0]).router).toMatchObject({ bits: 8, group: 32 })
      expect(model.experts.layout.down).toMatchObject({ bits: 8, group: 32 })
    })
    await expect(pack(tiny, undefined, { groupSize: 128 })).rejects.toMatchObject({ code: 'BAD_OPTION' }) // 64 columns
  })

  test('a tied head is the embedding, with or without a head of its own', async () => {
    const tensors = tinyTensors()
    tensors.delete('lm_head.weight')
    const folder = await pack(tensors, { ...tinyConfig(), tie_word_embeddings: true })
    await withModel(folder, model => expect(model.tensors.lmHead).toEqual(model.tensors.embed))
    await expect(pack(tensors)).rejects.toMatchObject({ code: 'BAD_TENSOR', tensor: 'lm_head.weight' })
  })

  test('tensors that are not the language model’s are left out', async () => {
    const tensors = tinyTensors()
    for (const name of [
      'mtp.layers.0.mlp.gate.weight',
      'model.visual.blocks.0.attn.qkv.weight',
      'vision_tower.x.weight',
    ]) {
      tensors.set(name, { dtype: 'F8_E4M3', shape: [4], data: new Uint8Array(4) })
    }
    const folder = await pack(tensors)
    expect(weightsOf(folder)).toEqual(weightsOf(packed4))
    expect(readFileSync(join(folder, 'model_weights.json'), 'utf8')).not.toMatch(/mtp|vis/)
  })

  const q = (bits: 2 | 4 | 8, group: 32 | 64 | 128 = 64, scaleType: 'BF16' | 'F16' = 'BF16'): MlxFormat => ({
    bits,
    group,
    scaleType,
  })
  const quantization = { group_size: 64, bits: 4, mode: 'affine' }

  test('mixed bits, groups and scale types per tensor are moved as they are', async () => {
    const formats = (name: string): MlxFormat | null => {
      if (name.endsWith('mlp.gate')) return q(8, 128)
      if (name.endsWith('shared_expert_gate')) return null
      if (name.endsWith('switch_mlp.down_proj')) return q(8, 32)
      if (name.endsWith('switch_mlp.up_proj')) return q(2, 64, 'F16')
      if (name.endsWith('in_proj_qkv')) return q(2, 128)
      return q(4)
    }
    const source = toMlx(tiny, formats)
    const folder = await pack(source, { ...tinyConfig(), quantization }, { shards: 2 })
    const weights = weightsOf(folder)
    await withModel(folder, model => {
      const linear = model.tensors.layers[0].mixer
      const moe = gatedMoe(model.tensors.layers[0])
      if (linear.kind !== 'linear_attention') throw new Error('layer kind')
      expect(moe.router).toMatchObject({ bits: 8, group: 128, scaleType: 'BF16' })
      expect(linear.inProjQkv).toMatchObject({ bits: 2, group: 128 })
      expect(moe.sharedGate).toMatchObject({ kind: 'plain', type: 'BF16' })
      const { gate, up, down } = model.experts.layout
      expect([gate, up, down]).toMatchObject([q(4), q(2, 64, 'F16'), q(8, 32)])
      expect(matrixValues(moe.router, weights).length).toBe(8 * 128)
      // Bytes moved: each part of expert 6 of layer 1 is the slice of its stacked tensor.
      const file = readFileSync(join(folder, 'packed_experts/layer_01.bin'))
      const base = 6 * model.experts.layout.expertSize
      for (const [matrix, name] of [
        [gate, 'gate_proj'],
        [up, 'up_proj'],
        [down, 'down_proj'],
      ] as const) {
        if (matrix.kind !== 'quantized') throw new Error('not quantized')
        for (const part of ['weight', 'scales', 'biases'] as const) {
          const { data } = source.get(`language_model.model.layers.1.mlp.switch_mlp.${name}.${part}`)!
          const { offset, size } = matrix[part]
          expect(data.byteLength).toBe(8 * size)
          expect(file.subarray(base + offset, base + offset + size).equals(data.subarray(6 * size, 7 * size))).toBe(
            true,
          )
        }
      }
      expect(model.experts.layout.expertSize % 64).toBe(0)
    })
  })

  test('an MLX export that was never quantized is quantized on the way, its norms as they are', async () => {
    const folder = await pack(toMlx(tiny, () => null))
    const weights = weightsOf(folder)
    await withModel(folder, model => {
      expect(gatedMoe(model.tensors.layers[0]).router).toMatchObject({ bits: 8 })
      const norm = values('model.norm.weight').map(w => Math.fround(1 + w))
      expect(vectorValues(model.tensors.norm, weights)).toEqual(norm)
    })
    for (const layer of [0, 3]) {
      const name = `packed_experts/layer_0${layer}.bin`
      expect(readFileSync(join(folder, name)).equals(readFileSync(join(packed4, name)))).toBe(true)
    }
  })

  test('the 2-bit set comes from the dequantized values of an MLX source', async () => {
    const folder = await pack(
      toMlx(tiny, () => q(4)),
      { ...tinyConfig(), quantization },
      { experts2bit: true },
    )
    const two = await open(folder, { expertBits: 2 })
    expect(two.experts.layout.up).toMatchObject({ bits: 2, group: 64, scaleType: 'BF16' })
    expect(two.experts.files[1].name).toContain('packed_experts_2bit')
    const one = await open(folder)
    expect(one.experts.layout.up).toMatchObject({ bits: 4 })
    expect(one.fingerprint).not.toBe(two.fingerprint)
    await Promise.all([one.close(), two.close()])
    const again = pack(
      toMlx(tiny, () => q(2)),
      { ...tinyConfig(), quantization },
      { experts2bit: true },
    )
    await expect(again).rejects.toMatchObject({ code: 'BAD_OPTION' })
  })

  const set =
    (name: string, change: (values: Float32Array) => void, type: 'BF16' | 'F16' = 'BF16') =>
    (tensors: Tensors) => {
      const tensor = tensors.get(name)!
      const changed = valuesOf(tensor)
      change(changed)
      tensors.set(name, floatTensor(type, tensor.shape, changed))
    }
  const poison = (at: number, value: number) => (list: Float32Array) => {
    list[at] = value
  }
  const mlx = 'language_model.model.layers.1.mlp'
  const bad: readonly (readonly [string, 'hf' | 'mlx', string, (tensors: Tensors) => void])[] = [
    ['NaN scale of an expert', 'mlx', 'BAD_TENSOR', set(`${mlx}.switch_mlp.up_proj.scales`, poison(77, Number.NaN))],
    ['infinite bias of a router', 'mlx', 'BAD_TENSOR', set(`${mlx}.gate.biases`, poison(3, Number.POSITIVE_INFINITY))],
    ['NaN weight to quantize', 'hf', 'BAD_TENSOR', set('lm_head.weight', poison(9999, Number.NaN))],
    ['NaN norm', 'hf', 'BAD_TENSOR', set('model.norm.weight', poison(1, Number.NaN))],
    ['missing expert', 'hf', 'BAD_TENSOR', tensors => tensors.delete('model.layers.2.mlp.experts.7.up_proj.weight')],
    ['missing stacked experts', 'mlx', 'BAD_TENSOR', tensors => tensors.delete(`${mlx}.switch_mlp.down_proj.weight`)],
    ['missing biases', 'mlx', 'BAD_TENSOR', tensors => tensors.delete(`${mlx}.gate.biases`)],
    [
      'another conv shape',
      'hf',
      'BAD_TENSOR',
      tensors => {
        const conv = tensors.get('model.layers.0.linear_attn.conv1d.weight')!
        tensors.set('model.layers.0.linear_attn.conv1d.weight', { ...conv, shape: [1, 256, 4] })
      },
    ],
    [
      'float8 weights',
      'hf',
      'BAD_TENSOR',
      tensors => {
        const { shape, data } = tensors.get('model.layers.0.mlp.gate.weight')!
        tensors.set('model.layers.0.mlp.gate.weight', {
          dtype: 'F8_E4M3',
          shape,
          data: data.subarray(0, data.length / 2),
        })
      },
    ],
    [
      'one name under two prefixes',
      'hf',
      'TENSOR_TWICE',
      tensors => {
        tensors.set('language_model.lm_head.weight', tensors.get('lm_head.weight')!)
      },
    ],
  ]
  test('layers whose experts differ have tables of their own, and records of one size', async () => {
    const tensors = toMlx(tiny, () => q(4))
    const other = toMlx(tiny, () => q(8))
    for (const part of ['weight', 'scales', 'biases']) {
      const name = `${mlx}.switch_mlp.gate_proj.${part}`
      tensors.set(name, other.get(name)!)
    }
    const root = temporaryFolder()
    const source = writeSource(join(root, 'source'), tensors, { config: { ...tinyConfig(), quantization } })
    const { metadata } = await packFolder(source, join(root, 'packed'))
    const tables = metadata.experts.get('packed_experts')!
    expect(tables.map(parts => parts[0].bits).sort()).toEqual([4, 4, 4, 8])
    const packed = await openPacked(await openNodeFolder(join(root, 'packed'), { links: 'any' }))
    const { layouts, files } = packed.experts
    for (const [place, { gate, up, expertSize }] of layouts.entries()) {
      expect(gate).toMatchObject({ bits: tables[place][0].bits })
      expect(up).toMatchObject({ bits: 4 })
      expect(files[place].size).toBe(expertSize * packed.config.numExperts)
    }
    await packed.close()
  })

  test.each(bad)('%s (%s): %s', async (_, layout, code, damage) => {
    const tensors = layout === 'hf' ? tinyTensors() : toMlx(tiny, () => q(4))
    damage(tensors)
    const config = layout === 'hf' ? tinyConfig() : { ...tinyConfig(), quantization }
    const root = temporaryFolder()
    const source = writeSource(join(root, 'source'), tensors, { config })
    const error = await packFolder(source, join(root, 'packed')).catch(error => error)
    expect(error).toBeInstanceOf(MoefluxError)
    expect(error.code).toBe(code)
    expect(existsSync(join(root, 'packed/moeflux.json'))).toBe(false)
  })

  test('a source that fails to read fails the conversion, and the next one works', async () => {
    const target = temporaryFolder()
    const folder = await openNodeFolder(tinySource, { links: 'inside' })
    const flaky: Folder = {
      location: folder.location,
      readText: name => folder.readText(name),
      async open(name) {
        const source = await folder.open(name)
        let reads = 0
        return {
          name: source.name,
          size: source.size,
          async read(offset, bytes) {
            if (++reads > 150) throw new ReadError(source.name, offset, bytes.byteLength, 'the read failed with EIO')
            await source.read(offset, bytes)
          },
          close: () => source.close(),
        }
      },
    }
    await expect(packInto(flaky, target)).rejects.toMatchObject({ code: 'READ_FAILED' })
    const result = await packFolder(tinySource, target)
    expect(result.bytesReused).toBeGreaterThan(0)
    expect(weightsOf(target)).toEqual(weightsOf(packed4))
  })
})
