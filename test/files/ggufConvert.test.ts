// GGUF files as sources of a conversion: the way back to what was converted, what is refused, and runs that are stopped.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { ReadError } from '#moeflux/base/errors.js'
import { preparePacked } from '#moeflux/files/convert/nodePreparePacked.js'
import { packFolder, packInto } from '#moeflux/files/convert/packFolder.js'
import { openFileSource } from '#moeflux/files/fileSource.js'
import { openGgufFolder } from '#moeflux/files/gguf/ggufFolder.js'
import { relayCosts } from '#moeflux/files/gguf/repackCosts.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import { tinyGguf, tinyGgufMetadata, tinyGgufTensors } from '../support/models/ggufModel.js'
import { text, typeId, u32 } from '../support/models/ggufWriter.js'
import { hashFolder, repository, temporaryFolder, tensorValues, tinySource } from '../support/models/packedFiles.js'
import { gatedMoe } from '../support/wasm/gatedMoe.js'

const mixed = join(repository, 'test/data/gguf/tiny-moe-Q4_K_M.gguf')

function written(bytes: Uint8Array, name = 'tiny.gguf'): string {
  const path = join(temporaryFolder(), name)
  writeFileSync(path, bytes)
  return path
}

const open = async (folder: string) => openPacked(await openNodeFolder(folder, { links: 'any' }))

test('packs to what the Hugging Face folder packs to', async () => {
  const [ours, theirs] = [join(temporaryFolder(), 'a'), join(temporaryFolder(), 'b')]
  const { metadata } = await packFolder(written(tinyGguf()), ours, { bits: 16 })
  await packFolder(tinySource, theirs, { bits: 16 })
  expect(metadata).toMatchObject({ model: 'tiny', source: { layout: 'gguf', name: 'tiny' } })
  for (let layer = 0; layer < 4; layer++) {
    const name = `packed_experts/layer_0${layer}.bin`
    expect(readFileSync(join(ours, name)).equals(readFileSync(join(theirs, name))), name).toBe(true)
  }
  const [got, want] = [await open(ours), await open(theirs)]
  const shapes = ({ config }: typeof got) => ({ ...config, eosTokenIds: [], maxPositionEmbeddings: 0 })
  expect(shapes(got)).toEqual(shapes(want))
  const bytes = (folder: string) => readFileSync(join(folder, 'model_weights.bin'))
  const values = (folder: string, packed: typeof got) => tensorValues(packed.tensors, bytes(folder))
  const [mine, other] = [values(ours, got), values(theirs, want)]
  expect([...mine.keys()]).toEqual([...other.keys()])
  for (const [name, floats] of mine) {
    if (!name.endsWith('A_log')) expect(floats, name).toEqual(other.get(name))
    else for (const [i, value] of floats.entries()) expect(value).toBeCloseTo(other.get(name)![i], 6)
  }
  await got.close()
  await want.close()
})

test('experts with gate and up in one tensor', async () => {
  const tensors = tinyGgufTensors()
  const fused = tensors.flatMap(tensor => {
    if (tensor.name.includes('ffn_up_exps')) return []
    if (!tensor.name.includes('ffn_gate_exps')) return tensor
    const up = tensors.find(({ name }) => name === tensor.name.replace('gate', 'up'))!
    const [experts, rows, cols] = tensor.shape as number[]
    const size = rows * cols * 2
    const data = new Uint8Array(2 * experts * size)
    for (let e = 0; e < experts; e++) {
      data.set(tensor.data.subarray(e * size, (e + 1) * size), 2 * e * size)
      data.set(up.data.subarray(e * size, (e + 1) * size), (2 * e + 1) * size)
    }
    return { ...tensor, name: tensor.name.replace('gate', 'gate_up'), shape: [experts, 2 * rows, cols], data }
  })
  const [one, two] = [join(temporaryFolder(), 'a'), join(temporaryFolder(), 'b')]
  await packFolder(written(tinyGguf({ tensors: fused })), one, { bits: 16 })
  await packFolder(written(tinyGguf()), two, { bits: 16 })
  const experts = (folder: string) => [...hashFolder(folder)].filter(([name]) => name.endsWith('.bin'))
  expect(experts(one)).toEqual(experts(two))
})

test('a file in parts, and one with a block that predicts further tokens, pack to the same', async () => {
  const [whole, split, longer] = ['whole', 'split', 'longer'].map(name => join(temporaryFolder(), name))
  await packFolder(written(tinyGguf()), whole, { bits: 16 })
  const folder = temporaryFolder()
  const tensors = tinyGgufTensors()
  const cuts = [0, 30, 60, tensors.length]
  for (let part = 0; part < 3; part++) {
    const about = [
      ['split.no', u32(part)] as const,
      ['split.count', u32(3)] as const,
      ['split.tensors.count', u32(tensors.length)] as const,
    ]
    const own = tensors.slice(cuts[part], cuts[part + 1])
    const bytes = tinyGguf({ metadata: part === 0 ? [...tinyGgufMetadata, ...about] : about, tensors: own })
    writeFileSync(join(folder, `tiny-0000${part + 1}-of-00003.gguf`), bytes)
  }
  const { metadata } = await packFolder(join(folder, 'tiny-00002-of-00003.gguf'), split, { bits: 16 })
  expect(metadata.model).toBe('tiny')
  const next = tensors.flatMap(tensor =>
    tensor.name.startsWith('blk.3.') ? [tensor, { ...tensor, name: tensor.name.replace('3', '4') }] : tensor,
  )
  const counted = tinyGgufMetadata.map(entry =>
    entry[0] === 'qwen35moe.block_count' ? ([entry[0], u32(5)] as const) : entry,
  )
  const predicting = [...counted, ['qwen35moe.nextn_predict_layers', u32(1)] as const]
  await packFolder(written(tinyGguf({ metadata: predicting, tensors: next })), longer, { bits: 16 })
  const files = (folder: string) => [...hashFolder(folder)].filter(([name]) => name !== 'moeflux.json')
  expect(files(split)).toEqual(files(whole))
  expect(files(longer)).toEqual(files(whole))
})

test('each tensor keeps its own form, in experts too', async () => {
  const folder = join(temporaryFolder(), 'packed')
  await packFolder(mixed, folder)
  const { tensors, experts, close } = await open(folder)
  const form = (matrix: { kind: string; block?: string }) => matrix.block ?? matrix.kind
  const downs = ['q4_k', 'q4_k', 'q6_k', 'q6_k']
  expect(tensors.layers.map(layer => form(gatedMoe(layer).sharedExpert.down))).toEqual(downs)
  const others = [tensors.embed, tensors.lmHead, gatedMoe(tensors.layers[0]).router]
  expect(others.map(form)).toEqual(['q4_k', 'q6_k', 'plain'])
  expect(experts.layouts.map(({ gate }) => form(gate))).toEqual(['q4_k', 'q4_k', 'q4_k', 'q4_k'])
  expect(experts.layouts.map(({ down }) => form(down))).toEqual(downs)
  expect(new Set(experts.layouts.map(({ expertSize }) => expertSize)).size).toBe(1)
  await close()
})

test('what became of each type', async () => {
  const costs = await relayCosts(mixed, openFileSource)
  const named = costs.map(({ type, storedAs, bits, storedBits }) => [type, storedAs, bits, storedBits])
  expect(named).toEqual([
    ['Q4_K', '4-bit blocks', 4.5, 4.625],
    ['Q6_K', '8-bit blocks', 6.5625, 8.5625],
    ['Q4_K', 'F32', 4.5, 32], // heads of 32 columns, whose order is undone, cut its blocks
    ['F32', 'F32', 32, 32],
  ])
  for (const { largestError } of costs) expect(largestError).toBe(0)
  expect(await relayCosts(written(tinyGguf()), openFileSource)).toEqual([])
})

test('a run that is stopped is taken up again, with the same bytes', async () => {
  const whole = join(temporaryFolder(), 'whole')
  await packFolder(mixed, whole)
  const want = hashFolder(whole)
  for (const share of [0.1, 0.5, 0.9]) {
    const folder = join(temporaryFolder(), 'stopped')
    const stop = new AbortController()
    const onProgress = ({ loaded, total }: { loaded: number; total: number }) => {
      if (loaded > share * total) stop.abort()
    }
    await expect(packFolder(mixed, folder, { signal: stop.signal, onProgress })).rejects.toThrow()
    const { bytesReused, bytes } = await packFolder(mixed, folder)
    expect(bytesReused).toBeLessThan(bytes)
    if (share > 0.4) expect(bytesReused).toBeGreaterThan(0)
    expect(hashFolder(folder)).toEqual(want)
  }
})

test('a read that fails, whichever it is, spoils nothing', async () => {
  const whole = join(temporaryFolder(), 'whole')
  await packFolder(mixed, whole)
  const want = hashFolder(whole)
  const folder = join(temporaryFolder(), 'packed')
  let reads = 0
  const failing = (last: number) => async (path: string) => {
    const source = await openFileSource(path)
    const read: typeof source.read = async (offset, target, signal) => {
      if (++reads > last) throw new ReadError(path, offset, target.byteLength, 'the disk is broken')
      await source.read(offset, target, signal)
    }
    return { name: source.name, size: source.size, read, close: () => source.close() }
  }
  const pack = async (last: number) => {
    reads = 0
    await packInto(await openGgufFolder(mixed, failing(last)), folder)
  }
  for (const last of [0, 1, 2, 40, 70, 100, 110, 115]) {
    await expect(pack(last), `${last} good reads`).rejects.toThrow('the disk is broken')
  }
  await pack(Number.POSITIVE_INFINITY)
  expect(hashFolder(folder)).toEqual(want)
})

test('opened by several at once it is packed once', async () => {
  const root = temporaryFolder()
  const folders = await Promise.all(Array.from({ length: 5 }, () => preparePacked(mixed, { root })))
  expect(new Set(folders).size).toBe(1)
  await (await open(folders[0])).close()
})

test('opened by its name it is packed once, and found again', async () => {
  const root = temporaryFolder()
  const notices: string[] = []
  const options = { root, onNotice: (line: string) => notices.push(line) }
  const first = await preparePacked(mixed, options)
  expect(notices).toEqual([expect.stringContaining('is packed once')])
  expect(await preparePacked(mixed, options)).toBe(first)
  expect(notices.length).toBe(1)
})

describe('what is refused leaves nothing behind', () => {
  const without = (name: string) => tinyGgufTensors().filter(tensor => tensor.name !== name)
  const changed = (name: string, change: object) =>
    tinyGgufTensors().map(tensor => (tensor.name === name ? { ...tensor, ...change } : tensor))
  const key = (name: string, value: ReturnType<typeof u32>) =>
    tinyGgufMetadata.map(entry => (entry[0] === name ? ([name, value] as const) : entry))
  test.each([
    ['another architecture', 'run: qwen35moe', tinyGguf({ metadata: key('general.architecture', text('llama')) })],
    ['another family', 'run: qwen35moe, qwen35', tinyGguf({ metadata: key('general.architecture', text('llama')) })],
    ['a missing tensor', 'blk.1.ssm_a: is missing', tinyGguf({ tensors: without('blk.1.ssm_a') })],
    [
      'a missing expert tensor',
      'ffn_up_exps.weight: is missing',
      tinyGguf({ tensors: without('blk.3.ffn_up_exps.weight') }),
    ],
    ['another shape', 'want [8,128]', tinyGguf({ tensors: changed('blk.0.ffn_gate_inp.weight', { shape: [16, 64] }) })],
    ['a scale that is no number', 'row 1', tinyGguf({ tensors: changed('output.weight', withNaN()) })],
    ['a positive decay', 'numbers below 0', tinyGguf({ tensors: changed('blk.0.ssm_a', { data: new Uint8Array(8) }) })],
    [
      'scaled rotation',
      'rope_parameters',
      tinyGguf({ metadata: [...tinyGgufMetadata, ['qwen35moe.rope.scaling.type', text('yarn')]] }),
    ],
    [
      'a sigmoid router',
      'expert_gating_func',
      tinyGguf({ metadata: [...tinyGgufMetadata, ['qwen35moe.expert_gating_func', u32(2)]] }),
    ],
    [
      'no head size',
      'attention.key_length is missing',
      tinyGguf({ metadata: tinyGgufMetadata.filter(([name]) => !name.endsWith('key_length')) }),
    ],
    ['a cut file', 'past the file', tinyGguf().subarray(0, 100_000)],
  ] as const)('%s', async (_, message, bytes) => {
    const target = join(temporaryFolder(), 'packed')
    await expect(packFolder(written(bytes), target)).rejects.toThrow(message)
    expect(existsSync(target)).toBe(false)
  })
})

/** The head in Q8_0, its second row with a scale that is NaN. */
function withNaN(): { type: number; data: Uint8Array } {
  const data = new Uint8Array((512 * 128 * 34) / 32)
  data.set([0x00, 0x7e], 34 * 5)
  return { type: typeId('Q8_0'), data }
}
