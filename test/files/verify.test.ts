// What verify says of every kind of folder: each file of the model was compared with something and is right, or is named as
// one that could not be compared, or as damaged. Never more than was looked at.
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { type VerifyReport, verifyModel } from '#moeflux/files/verify/verify.js'
import { NAN, poisonExperts, poisonTensor } from '../support/faults/poison.js'
import { demoSource, temporaryFolder, tinySource } from '../support/models/packedFiles.js'

let packed: string // the tiny model with both sets of experts, and texts of the demo

beforeAll(async () => {
  packed = mkdtempSync(join(tmpdir(), 'moeflux-verify-'))
  const source = mkdtempSync(join(tmpdir(), 'moeflux-verify-'))
  cpSync(tinySource, source, { recursive: true })
  for (const name of ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja']) {
    cpSync(join(demoSource, name), join(source, name))
  }
  await packFolder(source, packed, { experts2bit: true })
  rmSync(source, { recursive: true })
})
afterAll(() => rmSync(packed, { recursive: true, force: true }))

const verify = async (folder: string) => verifyModel(await openNodeFolder(folder, { links: 'any' }))

function copyOf(folder: string, without: readonly string[] = []): string {
  const copy = temporaryFolder()
  cpSync(folder, copy, { recursive: true, filter: path => !without.some(name => path.endsWith(name)) })
  return copy
}

function namesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort()
}

function flipBit(folder: string, name: string): void {
  const bytes = readFileSync(join(folder, name))
  bytes[Math.floor(bytes.length / 2)] ^= 1
  writeFileSync(join(folder, name), bytes)
}

const codes = ({ problems }: VerifyReport) => problems.map(({ code }) => code)
const comparedNames = ({ compared }: VerifyReport) => compared.map(({ name }) => name).sort()
const uncomparedNames = ({ uncompared }: VerifyReport) => uncompared.map(({ name }) => name).sort()

/** Nobody is spoken of twice, and nobody is left out. */
function expectEveryFile(folder: string, report: VerifyReport): void {
  const said = [...comparedNames(report), ...uncomparedNames(report), ...report.extra]
  const wrong = report.problems.map(problem => String((problem as { file?: string }).file).slice(folder.length + 1))
  expect([...said, ...new Set(wrong)].sort()).toEqual(namesIn(folder).filter(name => name !== 'moeflux.json'))
}

describe('a folder that was packed here', () => {
  test('is compared file by file, every byte of it', async () => {
    const report = await verify(packed)
    expect(report).toMatchObject({ kind: 'packed', uncompared: [], extra: [], problems: [] })
    expectEveryFile(packed, report)
    expect(report.compared.every(file => file.with === 'sha256')).toBe(true)
    const sizes = namesIn(packed).map(name => (name === 'moeflux.json' ? 0 : statSync(join(packed, name)).size))
    expect(report.bytes).toBe(sizes.reduce((sum, size) => sum + size, 0))
  })

  const kinds = [
    ...['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'],
    ...['model_weights.json', 'model_weights.bin', 'model_weights.sums', 'packed_experts.sums'],
    ...['packed_experts/layer_03.bin', 'packed_experts_2bit/layer_00.bin', 'packed_experts_2bit.sums'],
  ]
  test.each(kinds)('%s with one bit that is another, cut short, too long, or gone', async name => {
    const folder = copyOf(packed)
    const path = join(folder, name)
    const sound = readFileSync(path)
    const damages: [string, () => void][] = [
      ['CHECKSUM_MISMATCH', () => flipBit(folder, name)],
      ['SIZE_MISMATCH', () => truncateSync(path, sound.length - 1)],
      ['SIZE_MISMATCH', () => appendFileSync(path, 'x')],
      ['MISSING_FILE', () => rmSync(path)],
    ]
    for (const [code, damage] of damages) {
      damage()
      const report = await verify(folder)
      expect(codes(report)).toEqual([code])
      expect(report.problems[0].message).toContain(path)
      expect(comparedNames(report)).not.toContain(name)
      if (code !== 'MISSING_FILE') expectEveryFile(folder, report)
      writeFileSync(path, sound)
    }
    expect(codes(await verify(folder))).toEqual([])
  })

  test('names the experts that are damaged', async () => {
    const folder = copyOf(packed)
    const path = join(folder, 'packed_experts/layer_02.bin')
    const bytes = readFileSync(path)
    const expertSize = bytes.length / 8
    for (const expert of [3, 6]) bytes[expert * expertSize + 99] ^= 8
    writeFileSync(path, bytes)
    const { problems } = await verify(folder)
    expect(problems[0].message).toMatch(/layer_02\.bin: the checksum is .* damaged \(experts 3, 6\)$/)
  })

  test('files that are none of the model’s are named and no reason to doubt it', async () => {
    const folder = copyOf(packed)
    writeFileSync(join(folder, 'README.md'), 'notes')
    writeFileSync(join(folder, 'packed_experts/layer_04.bin'), 'a layer that the model does not have')
    writeFileSync(join(folder, 'packed_experts/layer_00.bin.partial'), '')
    mkdirSync(join(folder, '.git'))
    writeFileSync(join(folder, '.git/HEAD'), '')
    const report = await verify(folder)
    expect(report.extra).toEqual([
      '.git/HEAD',
      'README.md',
      'packed_experts/layer_00.bin.partial',
      'packed_experts/layer_04.bin',
    ])
    expect(report).toMatchObject({ uncompared: [], problems: [] })
    expectEveryFile(folder, report)
  })

  test('files that the engine reads and nothing lists are not said to be right', async () => {
    const folder = copyOf(packed)
    const path = join(folder, 'moeflux.json')
    const metadata = JSON.parse(readFileSync(path, 'utf8'))
    for (const name of ['tokenizer.json', 'packed_experts/layer_01.bin', 'model_weights.sums'])
      delete metadata.files[name]
    writeFileSync(path, JSON.stringify(metadata))
    const report = await verify(folder)
    expect(codes(report)).toEqual([])
    expect(uncomparedNames(report)).toEqual(['model_weights.sums', 'tokenizer.json'])
    expect(report.compared.find(file => file.name === 'packed_experts/layer_01.bin')?.with).toBe('blocks')
    expectEveryFile(folder, report)
    flipBit(folder, 'packed_experts/layer_01.bin')
    expect(codes(await verify(folder))).toEqual(['CHECKSUM_MISMATCH'])
    // With no list at all, all that is left is to look.
    writeFileSync(path, JSON.stringify({ ...metadata, files: {} }))
    const blind = await verify(folder)
    expect(blind.compared).toEqual([])
    expect(uncomparedNames(blind)).toEqual(namesIn(folder).filter(name => name !== 'moeflux.json'))
  })

  test('checksums of blocks that are another model’s are found out though they are listed as they are', async () => {
    const folder = copyOf(packed)
    flipBit(folder, 'packed_experts.sums')
    const path = join(folder, 'moeflux.json')
    const metadata = JSON.parse(readFileSync(path, 'utf8'))
    const sha256 = createHash('sha256')
      .update(readFileSync(join(folder, 'packed_experts.sums')))
      .digest('hex')
    metadata.files['packed_experts.sums'].sha256 = sha256
    writeFileSync(path, JSON.stringify(metadata))
    const { problems } = await verify(folder)
    expect(problems.map(({ message }) => message)).toEqual([
      expect.stringMatching(/layer_\d\d\.bin: does not match the checksums of its blocks in packed_experts\.sums/),
    ])
  })

  test('a conversion that is not finished is no model', async () => {
    const folder = copyOf(packed, ['moeflux.json'])
    writeFileSync(join(folder, 'converting.json'), '{}')
    await expect(verify(folder)).rejects.toMatchObject({ code: 'UNFINISHED' })
  })
})

describe('a folder that others have packed', () => {
  const foreign = () => copyOf(packed, ['moeflux.json', '.sums'])

  test('has nothing to be compared with, which is said of every file', async () => {
    const folder = foreign()
    const report = await verify(folder)
    expect(report).toMatchObject({ kind: 'packed', compared: [], extra: [], problems: [] })
    expectEveryFile(folder, report)
    const looked = Object.fromEntries(report.uncompared.map(file => [file.name, file.looked]))
    expect(looked).toMatchObject({
      'config.json': 'it is well-formed',
      'model_weights.bin': expect.stringContaining('floats are finite'),
      'packed_experts/layer_03.bin': expect.stringContaining('floats are finite'),
      'packed_experts_2bit/layer_00.bin': expect.stringContaining('floats are finite'),
      'tokenizer.json': null,
    })
  })

  test('NaN in any float of it is found: scales, norms, both sets of experts', async () => {
    const folder = foreign()
    const heals = [
      poisonTensor(folder, 'model.layers.2.mlp.gate.scales', NAN),
      poisonTensor(folder, 'model.norm.weight', NAN),
      poisonTensor(folder, 'model.layers.0.linear_attn.A_log', NAN),
      poisonTensor(folder, 'lm_head.biases', NAN),
    ]
    const [weights] = (await verify(folder)).problems
    expect(weights).toMatchObject({ code: 'NON_FINITE', file: join(folder, 'model_weights.bin') })
    expect(weights.message).toMatch(/and 3 other tensors do$/)
    for (const heal of heals.reverse()) heal()
    await poisonExperts(folder, 3, 'down', 'biases', NAN, [5])
    const two = join(folder, 'packed_experts_2bit/layer_02.bin')
    writeFileSync(two, readFileSync(two).fill(0xff))
    const { problems } = await verify(folder)
    expect(problems.map(({ message }) => message)).toEqual([
      expect.stringMatching(/packed_experts\/layer_03\.bin: biases of expert 5, .* at byte \d+$/),
      expect.stringMatching(/packed_experts_2bit\/layer_02\.bin: scales of expert 0, .* and \d+ other tensors do$/),
    ])
    expect(uncomparedNames(await verify(folder))).not.toContain('packed_experts/layer_03.bin')
  })

  test('a file that is cut short or gone is found', async () => {
    for (const name of ['packed_experts/layer_01.bin', 'packed_experts_2bit/layer_01.bin', 'model_weights.bin']) {
      const folder = foreign()
      truncateSync(join(folder, name), 1000)
      expect((await verify(folder)).problems.map(({ message }) => message)).toContainEqual(
        expect.stringContaining(join(folder, name)),
      )
      rmSync(join(folder, name))
      expect((await verify(folder)).problems.length).toBeGreaterThan(0)
    }
  })
})

describe.each([
  ['mlx', demoSource],
  ['hf', tinySource],
] as const)('a %s folder as it was downloaded', (kind, source) => {
  /** The same as the hub's cache has it: links to blobs that are named after their content. */
  function inHubCache(): { snapshot: string; blobOf: (name: string) => string } {
    const root = temporaryFolder()
    const snapshot = join(root, 'models--org--name/snapshots/abc')
    const blobs = join(root, 'models--org--name/blobs')
    mkdirSync(snapshot, { recursive: true })
    mkdirSync(blobs)
    const named = new Map<string, string>()
    for (const name of namesIn(source).filter(each => !each.includes('/'))) {
      const bytes = readFileSync(join(source, name))
      const isLarge = name.endsWith('.safetensors')
      const hash = isLarge ? createHash('sha256') : createHash('sha1').update(`blob ${bytes.length}\0`)
      const blob = join(blobs, hash.update(bytes).digest('hex'))
      writeFileSync(blob, bytes)
      symlinkSync(blob, join(snapshot, name))
      named.set(name, blob)
    }
    return { snapshot, blobOf: name => named.get(name) as string }
  }

  const shard = kind === 'mlx' ? 'model-00002-of-00002.safetensors' : 'model.safetensors'

  test('has nothing to be compared with, which is said of every file', async () => {
    const report = await verify(source)
    expect(report).toMatchObject({ kind, compared: [], problems: [] })
    expect(uncomparedNames(report)).toContain(shard)
    expectEveryFile(source, report)
  })

  test('what a conversion would refuse is found: a cut shard, a missing one, NaN, a broken header', async () => {
    const folder = copyOf(source)
    const sound = readFileSync(join(folder, shard))
    const path = join(folder, shard)
    truncateSync(path, sound.length - 5)
    expect((await verify(folder)).problems[0].message).toContain(path)
    rmSync(path)
    expect((await verify(folder)).problems[0].message).toContain(kind === 'mlx' ? shard : folder)
    const nan = Buffer.from(sound)
    const header = Number(nan.readBigUInt64LE(0))
    const tensors = JSON.parse(nan.toString('utf8', 8, 8 + header)) as Record<string, { data_offsets: number[] }>
    const name = Object.keys(tensors).find(each => /input_layernorm\.weight$/.test(each)) as string
    nan.writeUInt16LE(NAN, 8 + header + tensors[name].data_offsets[0])
    writeFileSync(path, nan)
    const poisoned = await verify(folder)
    expect(poisoned.problems).toMatchObject([{ code: 'NON_FINITE', file: path }])
    expect(uncomparedNames(poisoned)).not.toContain(shard)
    const broken = Buffer.from(sound)
    broken[20] ^= 0x80
    writeFileSync(path, broken)
    expect((await verify(folder)).problems.length).toBeGreaterThan(0)
  })

  test('in the hub’s cache every file is compared with its name', async () => {
    const { snapshot, blobOf } = inHubCache()
    const report = await verify(snapshot)
    expect(report).toMatchObject({ kind, uncompared: [], problems: [] })
    expect(comparedNames(report)).toContain(shard)
    expect(report.compared.every(file => file.with === 'hub')).toBe(true)
    for (const name of [shard, 'config.json']) {
      const sound = readFileSync(blobOf(name))
      const bytes = Buffer.from(sound)
      bytes[bytes.length - 2] ^= 1 // in a weight, or white space: nothing but the hash can tell
      writeFileSync(blobOf(name), bytes)
      const { problems } = await verify(snapshot)
      expect(problems[0], name).toMatchObject({ code: 'CHECKSUM_MISMATCH', file: join(snapshot, name) })
      writeFileSync(blobOf(name), sound)
    }
  })
})

test('folders that are no models are refused', async () => {
  await expect(verify(temporaryFolder())).rejects.toMatchObject({ code: 'MODEL_NOT_FOUND' })
})
