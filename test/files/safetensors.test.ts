// The safetensors reader against every way a file can be wrong, each with the name of its error.
import { mkdirSync, renameSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MoefluxError } from '#moeflux/base/errors.js'
import { readSafetensorsHeader } from '#moeflux/files/convert/safetensors.js'
import { openShardedModel } from '#moeflux/files/convert/shardedModel.js'
import { openFileSource } from '#moeflux/files/fileSource.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { parseStrictJson } from '#moeflux/files/strictJson.js'
import { buildSafetensors, memoryFolder, memorySource, safetensorsFile } from '../support/faults/memoryFiles.js'
import { temporaryFolder } from '../support/models/packedFiles.js'

const entry = (fields: { dtype?: unknown; shape?: unknown; offsets?: unknown } = {}) => {
  const { dtype = 'U8', shape = [4], offsets = [0, 4] } = fields
  return JSON.stringify({ dtype, shape, data_offsets: offsets })
}
const one = (fields?: Parameters<typeof entry>[0], data = 4) => safetensorsFile(`{"a":${entry(fields)}}`, data)
const raw = (text: string, data = 4) => safetensorsFile(`{"a":${text}}`, data)
const withLength = (length: bigint, size = 64) => {
  const file = new Uint8Array(size)
  new DataView(file.buffer).setBigUint64(0, length, true)
  return file
}
const offsets = (text: string) => raw(`{"dtype":"U8","shape":[4],"data_offsets":${text}}`)
const two = (first: number[], second: number[], data: number) => {
  const part = (span: number[]) => entry({ shape: [Math.max(0, span[1] - span[0])], offsets: span })
  return safetensorsFile(`{"a":${part(first)},"b":${part(second)}}`, data)
}

describe('a broken file gets its own error', () => {
  const cases: readonly (readonly [what: string, code: string, file: Uint8Array])[] = [
    ['empty', 'HEADER_TRUNCATED', new Uint8Array(0)],
    ['7 bytes', 'HEADER_TRUNCATED', new Uint8Array(7)],
    ['header length 0', 'HEADER_EMPTY', withLength(0n)],
    ['header length past the file', 'HEADER_PAST_FILE', withLength(57n)],
    ['header length over 100 MB', 'HEADER_TOO_LARGE', withLength(100_000_001n)],
    ['header length 2^63', 'HEADER_TOO_LARGE', withLength(2n ** 63n)],
    ['header length 2^64 - 1', 'HEADER_TOO_LARGE', withLength(2n ** 64n - 1n)],
    ['not an object', 'HEADER_NOT_OBJECT', safetensorsFile('["a"]')],
    ['leading space', 'HEADER_NOT_OBJECT', safetensorsFile(' {}')],
    ['bad UTF-8', 'BAD_UTF8', safetensorsFile(Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x7d))],
    ['cut JSON', 'BAD_JSON', safetensorsFile('{"a":')],
    ['more after the end', 'BAD_JSON', safetensorsFile('{}{}')],
    ['100,000 nested lists', 'JSON_TOO_DEEP', safetensorsFile(`{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`)],
    ['100,000 nested objects', 'JSON_TOO_DEEP', safetensorsFile('{"a":'.repeat(100_000))],
    ['duplicate names', 'DUPLICATE_NAME', safetensorsFile(`{"a":${entry()},"a":${entry()}}`, 4)],
    ['duplicate names, one escaped', 'DUPLICATE_NAME', safetensorsFile(`{"a":${entry()},"\\u0061":${entry()}}`, 4)],
    ['duplicate fields', 'DUPLICATE_NAME', raw('{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}')],
    ['a tensor that is no object', 'BAD_FIELD', raw('7')],
    ['negative offset', 'BAD_OFFSETS', offsets('[-1,3]')],
    ['fractional offset', 'BAD_OFFSETS', offsets('[0.5,4.5]')],
    ['offset 1e308', 'BAD_OFFSETS', offsets('[0,1e308]')],
    ['offset 1e999', 'BAD_OFFSETS', offsets('[0,1e999]')],
    ['string offset', 'BAD_OFFSETS', offsets('["0","4"]')],
    ['one offset', 'BAD_OFFSETS', offsets('[4]')],
    ['three offsets', 'BAD_OFFSETS', offsets('[0,2,4]')],
    ['no offsets', 'BAD_OFFSETS', raw('{"dtype":"U8","shape":[4]}')],
    ['end before begin', 'OFFSETS_REVERSED', offsets('[4,0]')],
    ['overlap', 'TENSORS_OVERLAP', two([0, 4], [2, 6], 6)],
    ['the same bytes twice', 'TENSORS_OVERLAP', two([0, 4], [0, 4], 4)],
    ['hole', 'HOLE', two([0, 2], [4, 6], 6)],
    ['hole at the start', 'HOLE', offsets('[4,8]')],
    ['trailing bytes', 'TRAILING_BYTES', one({}, 5)],
    ['data missing', 'TENSOR_PAST_FILE', one({}, 3)],
    ['shape product past 2^53', 'SHAPE_TOO_LARGE', one({ shape: [2 ** 30, 2 ** 30] })],
    ['shape product past 2^53, then 0', 'SHAPE_TOO_LARGE', one({ shape: [2 ** 30, 2 ** 30, 0], offsets: [0, 0] }, 0)],
    ['negative dim', 'BAD_SHAPE', one({ shape: [-4] })],
    ['fractional dim', 'BAD_SHAPE', one({ shape: [4.5] })],
    ['shape is a string', 'BAD_SHAPE', one({ shape: '4' })],
    ['unknown dtype', 'UNKNOWN_DTYPE', one({ dtype: 'Q4_K' })],
    ['dtype of an object prototype', 'UNKNOWN_DTYPE', one({ dtype: 'constructor' })],
    ['size not matching shape', 'SIZE_MISMATCH', one({ shape: [3] })],
    ['metadata that is not text', 'BAD_METADATA', safetensorsFile('{"__metadata__":{"a":1}}')],
  ]
  test.each(cases)('%s: %s', async (_, code, file) => {
    const error = await readSafetensorsHeader(memorySource(file)).catch(error => error)
    expect(error).toBeInstanceOf(MoefluxError)
    expect(error.code).toBe(code)
    expect(error.message).toMatch(/^test\.safetensors: .{5,200}$/)
  })
})

test('names like __proto__ are names like any other', async () => {
  const names = ['__proto__', 'constructor', 'toString', '', 'ö \u0000 \ud83d\ude00']
  const tensors = new Map(names.map(name => [name, { dtype: 'U8', shape: [1], data: Uint8Array.of(7) }]))
  const header = await readSafetensorsHeader(memorySource(buildSafetensors(tensors, { format: 'pt' })))
  expect([...header.tensors.keys()].sort()).toEqual(names.sort())
  expect(header.tensors.get('constructor')).toMatchObject({ dtype: 'U8', shape: [1], size: 1 })
  expect(header.tensors.get('hasOwnProperty')).toBeUndefined()
  expect(header.metadata.get('format')).toBe('pt')
})

test('accepts what the format allows: no tensors, empty ones, scalars, padding, any order', async () => {
  const read = (file: Uint8Array) => readSafetensorsHeader(memorySource(file))
  expect((await read(safetensorsFile('{}'))).tensors.size).toBe(0)
  expect((await read(safetensorsFile('{}   \n '))).tensors.size).toBe(0)
  const scalar = entry({ dtype: 'F64', shape: [], offsets: [0, 8] })
  const empty = entry({ dtype: 'F32', shape: [3, 0], offsets: [8, 8] })
  const last = entry({ dtype: 'BF16', shape: [2], offsets: [8, 12] })
  const { tensors } = await read(safetensorsFile(`{"last":${last},"empty":${empty},"scalar":${scalar}}`, 12))
  expect([...tensors.values()].map(tensor => [tensor.name, tensor.size])).toEqual([
    ['last', 4],
    ['empty', 0],
    ['scalar', 8],
  ])
})

describe('shards', () => {
  const shard = (name: string, size = 4) =>
    buildSafetensors(new Map([[name, { dtype: 'U8', shape: [size], data: new Uint8Array(size) }]]))
  const index = (map: Readonly<Record<string, unknown>>) => JSON.stringify({ metadata: {}, weight_map: map })
  const open = (files: Readonly<Record<string, Uint8Array | string>>) =>
    openShardedModel(memoryFolder(new Map(Object.entries(files))))
  const INDEX = 'model.safetensors.index.json'

  test('a single file needs no index', async () => {
    const model = await open({ 'model.safetensors': shard('a') })
    expect([...model.tensors.keys()]).toEqual(['a'])
  })

  test('an index joins its shards', async () => {
    const model = await open({
      [INDEX]: index({ a: '1.safetensors', b: '2.safetensors' }),
      '1.safetensors': shard('a'),
      '2.safetensors': shard('b', 9),
    })
    expect([...model.tensors.values()].map(tensor => [tensor.name, tensor.size, tensor.source.name])).toEqual([
      ['a', 4, '1.safetensors'],
      ['b', 9, '2.safetensors'],
    ])
  })

  const broken: readonly (readonly [string, string, Readonly<Record<string, Uint8Array | string>>])[] = [
    ['no file at all', 'MODEL_NOT_FOUND', {}],
    ['a missing shard', 'MISSING_SHARD', { [INDEX]: index({ a: '1.safetensors' }) }],
    [
      'one tensor in two shards',
      'TENSOR_TWICE',
      {
        [INDEX]: index({ a: '1.safetensors', b: '2.safetensors' }),
        '1.safetensors': shard('a'),
        '2.safetensors': shard('a'),
      },
    ],
    [
      'a tensor that its shard lacks',
      'TENSOR_NOT_IN_SHARD',
      { [INDEX]: index({ a: '1.safetensors', b: '1.safetensors' }), '1.safetensors': shard('a') },
    ],
    ['an index without weight_map', 'BAD_FIELD', { [INDEX]: '{}' }],
    ['an empty weight_map', 'EMPTY_INDEX', { [INDEX]: index({}) }],
    ['a shard name that is no string', 'BAD_FIELD', { [INDEX]: index({ a: 7 }) }],
    ['a tensor listed twice', 'DUPLICATE_NAME', { [INDEX]: '{"weight_map":{"a":"1","a":"2"}}' }],
    ['an index that is not JSON', 'BAD_JSON', { [INDEX]: 'weights' }],
  ]
  test.each(broken)('%s: %s', async (_, code, files) => {
    await expect(open(files)).rejects.toMatchObject({ code })
  })

  const outside = [
    '/etc/passwd',
    '../secret.safetensors',
    'a/../../secret.safetensors',
    'C:\\x.safetensors',
    'C:x',
    '..\\x',
    'a\0b',
    '',
    '.',
    'a//b',
  ]
  test.each(outside)('a shard named %j never reaches the disk', async name => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, INDEX), index({ a: name }))
    const model = openNodeFolder(folder, { links: 'inside' }).then(openShardedModel)
    await expect(model).rejects.toMatchObject({ code: 'BAD_FILE_NAME' })
  })

  test('links are followed inside the folder and to the blobs of the hub, and nowhere else', async () => {
    const root = temporaryFolder()
    const file = shard('a')
    const make = (folder: string, target: string) => {
      mkdirSync(join(root, folder), { recursive: true })
      symlinkSync(target, join(root, folder, 'model.safetensors'))
      return openNodeFolder(join(root, folder), { links: 'inside' }).then(openShardedModel)
    }
    mkdirSync(join(root, 'models--x/blobs'), { recursive: true })
    writeFileSync(join(root, 'models--x/blobs/123'), file)
    writeFileSync(join(root, 'elsewhere'), file)
    await expect(make('out', join(root, 'elsewhere'))).rejects.toMatchObject({ code: 'LINK_OUTSIDE_FOLDER' })
    await expect(make('models--x/snapshots/abc', '../../blobs/123').then(m => m.close())).resolves.toBeUndefined()
    await expect(make('models--x/snapshots/def', '../../../elsewhere')).rejects.toMatchObject({
      code: 'LINK_OUTSIDE_FOLDER',
    })
    mkdirSync(join(root, 'inside'))
    writeFileSync(join(root, 'inside/real'), file)
    await expect(make('inside', 'real').then(m => m.close())).resolves.toBeUndefined()
  })
})

describe('files of the disk', () => {
  test('a file that is cut short while open gives a ReadError', async () => {
    const path = join(temporaryFolder(), 'file')
    writeFileSync(path, new Uint8Array(100))
    const source = await openFileSource(path)
    await source.read(0, new Uint8Array(100))
    truncateSync(path, 40)
    await expect(source.read(20, new Uint8Array(50))).rejects.toMatchObject({
      code: 'READ_FAILED',
      offset: 20,
      wanted: 50,
    })
    await source.read(0, new Uint8Array(40))
    await source.close()
  })

  test('a file that is replaced while open keeps giving its own bytes', async () => {
    const folder = temporaryFolder()
    const [path, other] = [join(folder, 'file'), join(folder, 'other')]
    writeFileSync(path, new Uint8Array(100).fill(1))
    writeFileSync(other, new Uint8Array(10).fill(2))
    const source = await openFileSource(path)
    renameSync(other, path)
    const bytes = new Uint8Array(100)
    await source.read(0, bytes)
    expect(bytes.every(byte => byte === 1)).toBe(true)
    await source.close()
  })

  test('reads past the end and missing files are ReadErrors, a folder is no file', async () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'file'), new Uint8Array(10))
    const source = await openFileSource(join(folder, 'file'))
    await expect(source.read(5, new Uint8Array(6))).rejects.toMatchObject({ code: 'READ_FAILED' })
    await expect(source.read(-1, new Uint8Array(1))).rejects.toMatchObject({ code: 'READ_FAILED' })
    await expect(source.read(0, new Uint8Array(1), AbortSignal.abort())).rejects.toThrow(/abort/)
    await source.close()
    await expect(openFileSource(join(folder, 'none'))).rejects.toMatchObject({ code: 'READ_FAILED' })
    await expect(openFileSource(folder)).rejects.toMatchObject({ code: 'NOT_A_FILE' })
  })
})

describe('whatever the bytes', () => {
  const onlyTyped = async (file: Uint8Array) => {
    try {
      await readSafetensorsHeader(memorySource(file))
    } catch (error) {
      if (!(error instanceof MoefluxError)) throw error
    }
  }

  test('random files give a header or a typed error', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async bytes => {
        await onlyTyped(bytes)
        await onlyTyped(safetensorsFile(bytes, 8))
        const object = new Uint8Array(bytes.length + 1)
        object[0] = 0x7b
        object.set(bytes, 1)
        await onlyTyped(safetensorsFile(object, 8))
      }),
      { numRuns: 300 },
    )
  })

  test('mutated files give a header or a typed error', async () => {
    const tensor = { dtype: 'F32', shape: [2, 3], data: new Uint8Array(24) }
    const valid = buildSafetensors(
      new Map([
        ['a', tensor],
        ['b.c', tensor],
        ['d', tensor],
      ]),
      { format: 'pt' },
    )
    const edit = fc.record({ at: fc.nat(valid.length - 1), byte: fc.nat(255), drop: fc.boolean() })
    await fc.assert(
      fc.asyncProperty(fc.array(edit, { minLength: 1, maxLength: 4 }), async edits => {
        let bytes = valid.slice()
        for (const { at, byte, drop } of edits) {
          const where = at % bytes.length
          if (drop) bytes = Uint8Array.from([...bytes.subarray(0, where), ...bytes.subarray(where + 1)])
          else bytes[where] = byte
        }
        await onlyTyped(bytes)
      }),
      { numRuns: 500 },
    )
  })

  test('the strict JSON reader agrees with JSON.parse on all JSON', () => {
    const plain = (value: unknown): unknown => {
      if (value instanceof Map) return Object.fromEntries([...value].map(([key, inner]) => [key, plain(inner)]))
      return Array.isArray(value) ? value.map(plain) : value
    }
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), text => {
        expect(JSON.stringify(plain(parseStrictJson(text, 'x')))).toBe(JSON.stringify(JSON.parse(text)))
      }),
    )
    fc.assert(
      fc.property(fc.string(), text => {
        const parses = (parse: () => unknown) => {
          try {
            parse()
            return true
          } catch (error) {
            if (!(error instanceof SyntaxError || error instanceof MoefluxError)) throw error
            return false
          }
        }
        expect(parses(() => parseStrictJson(text, 'x'))).toBe(parses(() => JSON.parse(text)))
      }),
      { numRuns: 1000 },
    )
  })
})
