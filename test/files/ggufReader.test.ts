// The GGUF reader against every way a file can be wrong, each with the name of its error.
import { readFileSync } from 'node:fs'
import { join as joinPath } from 'node:path'
import { describe, expect, test } from 'vitest'
import { MoefluxError, ReadError } from '#moeflux/base/errors.js'
import { openGgufFile, readGgufHeader } from '#moeflux/files/gguf/ggufFile.js'
import type { ByteSource } from '#moeflux/files/source.js'
import { memorySource } from '../support/faults/memoryFiles.js'
import {
  bool,
  buildGguf,
  f32,
  join,
  list,
  type TestGguf,
  text,
  u32,
  word32,
  word64,
} from '../support/models/ggufWriter.js'
import { repository } from '../support/models/packedFiles.js'
import { seededRandom } from '../support/random.js'

const F32 = 0
const Q8_0 = 8
const tensor = (name: string, values = 8) => ({ name, shape: [values], type: F32, data: new Uint8Array(values * 4) })
const read = (bytes: Uint8Array) => readGgufHeader(memorySource(bytes, 'test.gguf'))

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    error => error,
  )
  expect(error).toBeInstanceOf(MoefluxError)
  expect(error.message).toContain('.gguf')
  return error.code
}

describe('a sound file', () => {
  test('values of all types, nested arrays, tensors with their places', async () => {
    const wide = (type: number, bytes: Uint8Array) => ({ type, bytes })
    const bytes = buildGguf({
      metadata: [
        ['u8', wide(0, Uint8Array.of(200))],
        ['i8', wide(1, Uint8Array.of(200))],
        ['u16', wide(2, Uint8Array.of(0xff, 0xff))],
        ['i16', wide(3, Uint8Array.of(0xff, 0xff))],
        ['u32', u32(4e9)],
        ['i32', wide(5, word32(0xfffffffe))],
        ['f32', f32(0.5)],
        ['bool', bool(true)],
        ['text', text('naïve')],
        ['u64', wide(10, word64(2n ** 40n))],
        ['large', wide(10, word64(2n ** 63n))],
        ['i64', wide(11, word64(2n ** 64n - 3n))],
        ['f64', wide(12, new Uint8Array(Float64Array.of(1e300).buffer))],
        ['nested', list([list([u32(1), u32(2)]), list([text('a')]), list([])])],
      ],
      tensors: [{ name: 'm', shape: [3, 64], type: Q8_0, data: new Uint8Array(3 * 68) }, tensor('v', 5)],
    })
    const { version, metadata, tensors } = await read(bytes)
    expect(version).toBe(3)
    expect([...metadata.values()]).toEqual([
      ...[200, -56, 65535, -1, 4e9, -2, 0.5, true, 'naïve', 2 ** 40, 2n ** 63n, -3, 1e300],
      [[1, 2], ['a'], []],
    ])
    const [matrix, vector] = [...tensors.values()]
    expect(matrix).toMatchObject({ name: 'm', shape: [3, 64], size: 204, type: { name: 'Q8_0' } })
    expect(vector).toMatchObject({ shape: [5], size: 20, offset: matrix.offset + 224 })
    expect(bytes.length).toBe(vector.offset + 32)
  })

  test('version 2, another alignment, a header longer than the first read', async () => {
    const words = Array.from({ length: 200_000 }, (_, i) => text(`word ${i}`))
    const metadata = [['general.alignment', u32(64)] as const, ['words', list(words)] as const]
    const { tensors, metadata: found } = await read(
      buildGguf({ version: 2, metadata, tensors: [tensor('a')], alignment: 64 }),
    )
    expect((found.get('words') as string[])[199_999]).toBe('word 199999')
    expect(tensors.get('a')!.offset % 64).toBe(0)
  })
})

describe('a broken file gets its own error', () => {
  const build = (file: TestGguf) => buildGguf(file)
  const key = (name: string, type: number, ...bytes: Uint8Array[]): TestGguf => ({
    metadata: [[name, { type, bytes: join(...bytes) }]],
  })
  const shaped = (shape: readonly (number | bigint)[], type = F32) =>
    build({ tensors: [{ name: 'a', shape, type, data: new Uint8Array(64) }] })
  const placed = (...offsets: bigint[]) =>
    build({ tensors: offsets.map((offset, i) => ({ ...tensor(`t${i}`), offset })) })
  const deep = (levels: number): Uint8Array =>
    levels === 0 ? word32(7) : join(word32(levels === 1 ? 4 : 9), word64(1n), deep(levels - 1))
  const cases: readonly (readonly [what: string, code: string, file: Uint8Array])[] = [
    ['empty', 'HEADER_TRUNCATED', new Uint8Array(0)],
    ['23 bytes', 'HEADER_TRUNCATED', build({}).subarray(0, 23)],
    ['another magic', 'BAD_MAGIC', build({ magic: 'GGML' })],
    ['version 1', 'UNKNOWN_VERSION', build({ version: 1 })],
    ['version 99', 'UNKNOWN_VERSION', build({ version: 99 })],
    ['big-endian', 'UNKNOWN_VERSION', build({ version: 0x03000000 })],
    ['2^63 tensors', 'COUNT_PAST_FILE', build({ tensorCount: 2n ** 63n })],
    ['2^63 metadata entries', 'COUNT_PAST_FILE', build({ metadataCount: 2n ** 63n })],
    ['more entries than bytes', 'COUNT_PAST_FILE', build({ metadataCount: 1000n })],
    ['an array of 2^63', 'COUNT_PAST_FILE', build(key('a', 9, word32(4), word64(2n ** 63n)))],
    ['a string of 4 GB', 'STRING_TOO_LONG', build(key('a', 8, word64(2n ** 32n)))],
    ['a string of 2^64 - 1', 'STRING_TOO_LONG', build(key('a', 8, word64(2n ** 64n - 1n)))],
    [
      'a key of 4 GB',
      'STRING_TOO_LONG',
      join(build({ metadataCount: 1n }).subarray(0, 24), word64(2n ** 32n), new Uint8Array(64)),
    ],
    ['a string past the file', 'HEADER_TRUNCATED', build(key('a', 8, word64(4096n)))],
    ['a string that is no UTF-8', 'BAD_UTF8', build(key('a', 8, word64(1n), Uint8Array.of(0xff)))],
    ['an unknown value type', 'BAD_METADATA', build(key('a', 13, new Uint8Array(8)))],
    ['an unknown element type', 'BAD_METADATA', build(key('a', 9, word32(77), word64(0n)))],
    ['the boolean 2', 'BAD_METADATA', build(key('a', 7, Uint8Array.of(2)))],
    ['five levels of arrays', 'NESTED_TOO_DEEP', build(key('a', 9, deep(5)))],
    [
      'a key twice',
      'DUPLICATE_KEY',
      build({
        metadata: [
          ['a', u32(1)],
          ['a', u32(1)],
        ],
      }),
    ],
    ['a tensor twice', 'TENSOR_TWICE', build({ tensors: [tensor('a'), tensor('a')] })],
    ['no dimensions', 'BAD_SHAPE', shaped([])],
    ['five dimensions', 'BAD_SHAPE', shaped([1, 1, 1, 1, 1])],
    ['a dimension of 0', 'BAD_SHAPE', shaped([0, 4])],
    ['rows that cut blocks', 'BAD_SHAPE', shaped([1, 33], Q8_0)],
    ['a product past 2^53', 'SHAPE_TOO_LARGE', shaped([2 ** 30, 2 ** 30])],
    ['a product past 2^64', 'SHAPE_TOO_LARGE', shaped([2n ** 63n, 2n ** 63n])],
    ['an unknown type', 'UNKNOWN_DTYPE', shaped([4], 99)],
    ['a type that was taken out', 'UNKNOWN_DTYPE', shaped([32], 4)],
    ['alignment 0', 'BAD_ALIGNMENT', build({ metadata: [['general.alignment', u32(0)]] })],
    ['alignment 48', 'BAD_ALIGNMENT', build({ metadata: [['general.alignment', u32(48)]] })],
    ['alignment as text', 'BAD_ALIGNMENT', build({ metadata: [['general.alignment', text('32')]] })],
    ['an offset between the alignment', 'BAD_OFFSETS', placed(8n)],
    ['an offset past the file', 'TENSOR_PAST_FILE', placed(2n ** 20n)],
    ['an offset of 2^64 - 32', 'TENSOR_PAST_FILE', placed(2n ** 64n - 32n)],
    ['two tensors in one place', 'TENSORS_OVERLAP', placed(0n, 0n)],
  ]
  test.each(cases)('%s: %s', async (_, code, file) => {
    expect(await codeOf(read(file))).toBe(code)
  })

  test('cut at every byte', async () => {
    const metadata = [['a', text('some text')] as const, ['b', list([u32(1), u32(2)])] as const]
    const whole = buildGguf({ metadata, tensors: [tensor('t', 3), tensor('u', 5)] })
    await read(whole)
    const last = (await read(whole)).tensors.get('u')!
    for (let length = 0; length < last.offset + last.size; length++) {
      const code = await codeOf(read(whole.subarray(0, length)))
      expect(['HEADER_TRUNCATED', 'COUNT_PAST_FILE', 'TENSOR_PAST_FILE'], `${length} bytes`).toContain(code)
    }
  })

  test('what a large file merely claims is not read', async () => {
    // A file of a terabyte that has a header and nothing else that could be looked at.
    const head = buildGguf({ metadata: [['words', list([], 8)]], tensors: [tensor('a')] })
    const at = head.indexOf(9, 24) + 8 // the array's length
    new DataView(head.buffer).setBigUint64(at, 2n ** 36n, true)
    const reads: number[] = []
    const source: ByteSource = {
      name: 'huge.gguf',
      size: 2 ** 40,
      async read(offset, target) {
        reads.push(target.byteLength)
        target.set(head.subarray(offset, offset + target.byteLength))
      },
      async close() {},
    }
    expect(await codeOf(readGgufHeader(source))).toBe('ARRAY_TOO_LONG')
    expect(reads).toEqual([2 ** 20])
  })

  test('5,000 random mutations are read or refused', async () => {
    const valid = new Uint8Array(readFileSync(joinPath(repository, 'test/data/gguf/types.gguf'))).subarray(0, 8192)
    const size = 25_696
    const random = seededRandom(15)
    const counts = { read: 0, refused: 0 }
    for (let run = 0; run < 5000; run++) {
      const bytes = valid.slice(0, random() < 0.2 ? Math.floor(random() * valid.length) : valid.length)
      const view = new DataView(bytes.buffer)
      for (let i = 1 + Math.floor(random() * 3); i > 0 && bytes.length > 8; i--) {
        const at = Math.floor(random() * Math.min(bytes.length - 8, 1200)) // where the header is
        if (random() < 0.5) bytes[at] = Math.floor(random() * 256)
        else view.setBigUint64(at, 2n ** BigInt(Math.floor(random() * 64)), true)
      }
      const source = {
        ...memorySource(bytes, 'mutated.gguf'),
        size: bytes.length === valid.length ? size : bytes.length,
      }
      source.read = async (_, target) => target.set(bytes.subarray(0, Math.min(target.length, bytes.length)))
      try {
        await readGgufHeader(source)
        counts.read++
      } catch (error) {
        expect(error).toBeInstanceOf(MoefluxError)
        counts.refused++
      }
    }
    expect(counts.read).toBeGreaterThan(100)
    expect(counts.refused).toBeGreaterThan(1000)
  })
})

describe('split files', () => {
  const part = (no: number, count: number, total: number, name: string) =>
    buildGguf({
      metadata: [
        ['split.no', u32(no)],
        ['split.count', u32(count)],
        ['split.tensors.count', u32(total)],
      ],
      tensors: [tensor(name)],
    })
  const open = (files: Record<string, Uint8Array>, path: string) =>
    openGgufFile(path, async name => {
      if (files[name] === undefined) throw new ReadError(name, 0, 0, 'no such file')
      return memorySource(files[name], name)
    })
  const both = { 'm-00001-of-00002.gguf': part(0, 2, 2, 'a'), 'm-00002-of-00002.gguf': part(1, 2, 2, 'b') }

  test('any part leads to all', async () => {
    for (const path of Object.keys(both)) {
      const { name, tensors } = await open(both, path)
      expect(name).toBe('m-00001-of-00002.gguf')
      expect([...tensors].map(([key, { source }]) => [key, source.name])).toEqual([
        ['a', 'm-00001-of-00002.gguf'],
        ['b', 'm-00002-of-00002.gguf'],
      ])
    }
  })

  test.each([
    ['a part is missing', 'MISSING_SHARD', { 'm-00002-of-00002.gguf': undefined }],
    ['a part of another model', 'BAD_SPLIT', { 'm-00002-of-00002.gguf': part(1, 3, 3, 'b') }],
    ['the same part twice', 'BAD_SPLIT', { 'm-00002-of-00002.gguf': part(0, 2, 2, 'b') }],
    ['other tensors than all said', 'BAD_SPLIT', { 'm-00002-of-00002.gguf': part(1, 2, 7, 'b') }],
    ['a tensor in two parts', 'TENSOR_TWICE', { 'm-00002-of-00002.gguf': part(1, 2, 2, 'a') }],
    ['a part that is no part', 'BAD_SPLIT', { 'm-00002-of-00002.gguf': buildGguf({ tensors: [tensor('b')] }) }],
  ])('%s: %s', async (_, code, change) => {
    expect(await codeOf(open({ ...both, ...change } as Record<string, Uint8Array>, 'm-00001-of-00002.gguf'))).toBe(code)
  })

  test('a renamed part is not taken for a whole', async () => {
    expect(await codeOf(open({ 'x.gguf': part(0, 2, 2, 'a') }, 'x.gguf'))).toBe('BAD_SPLIT')
  })
})
