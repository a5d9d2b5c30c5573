// Checksums by blocks: the hash itself, how files are cut, the file that holds them, and sources that compare.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ChecksumError, FormatError, ReadError } from '#moeflux/base/errors.js'
import {
  type BlockChecksums,
  type BlockShape,
  BlockSummer,
  blocksOf,
  blocksPerRecord,
  expertBlockBytes,
  formatChecksums,
  parseChecksums,
} from '#moeflux/files/packed/blockChecksums.js'
import { blockHash, hashesOver } from '#moeflux/files/packed/blockHash.js'
import { CheckedSource } from '#moeflux/files/packed/checkedSource.js'
import type { ByteSource } from '#moeflux/files/source.js'
import { memorySource } from '../support/faults/memoryFiles.js'
import { seededRandom } from '../support/random.js'

const MASK = (1n << 64n) - 1n
const rotate = (x: bigint, by: bigint) => ((x << by) | (x >> (64n - by))) & MASK
const [P1, P2, P3, P4, P5] = [
  ...[0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n],
  ...[0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n],
]

/** XXH64 of whole 64-bit words, by its specification. */
function xxHash64(bytes: Uint8Array, seed: bigint): bigint {
  const words = Array.from(new BigUint64Array(bytes.slice().buffer))
  const step = (lane: bigint, word: bigint) => (rotate((lane + word * P2) & MASK, 31n) * P1) & MASK
  let hash = (seed + P5) & MASK
  let rest = words
  if (words.length >= 4) {
    let lanes = [seed + P1 + P2, seed + P2, seed, seed - P1].map(lane => lane & MASK)
    for (; rest.length >= 4; rest = rest.slice(4)) lanes = lanes.map((lane, i) => step(lane, rest[i]))
    hash = lanes.reduce((sum, lane, i) => sum + rotate(lane, [1n, 7n, 12n, 18n][i]), 0n) & MASK
    for (const lane of lanes) hash = ((hash ^ step(0n, lane)) * P1 + P4) & MASK
  }
  hash = (hash + BigInt(bytes.length)) & MASK
  for (const word of rest) hash = (rotate(hash ^ step(0n, word), 27n) * P1 + P4) & MASK
  hash = ((hash ^ (hash >> 33n)) * P2) & MASK
  hash = ((hash ^ (hash >> 29n)) * P3) & MASK
  return hash ^ (hash >> 32n)
}

/** The checksum as docs/formats.md has it. */
function definition(bytes: Uint8Array): bigint {
  const padded = new Uint8Array(Math.ceil(bytes.length / 128) * 128)
  padded.set(bytes)
  const lanes = Uint32Array.from({ length: 32 }, (_, i) => i + 1)
  for (const [i, word] of new Uint32Array(padded.buffer).entries()) {
    const lane = lanes[i % 32]
    lanes[i % 32] = Math.imul((lane ^ (lane >>> 15)) + word, 0x9e3779b1)
  }
  return xxHash64(new Uint8Array(lanes.buffer), BigInt(bytes.length))
}

describe('the checksum of a block', () => {
  test('ends with XXH64, whose reference implementation gives these', () => {
    const text = (words: string) => new TextEncoder().encode(words)
    expect(xxHash64(text(''), 0n)).toBe(0xef46db3751d8e999n)
    expect(xxHash64(text('0123456789abcdef'.repeat(3)), 0n)).toBe(0xe35216444a3c253bn)
    expect(xxHash64(text('0123456789abcdef'.repeat(3)), 7n)).toBe(0x2fec112db6b725a7n)
  })

  test('is what it is defined to be, in a memory of its own or where bytes lie, and knows every bit', () => {
    const memory = new WebAssembly.Memory({ initial: 2, maximum: 4, shared: true })
    const shared = new Uint8Array(memory.buffer)
    const hash = hashesOver(memory)
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 700 }), fc.nat(70_000), fc.nat(), (bytes, address, bit) => {
        const want = definition(bytes)
        expect(blockHash(bytes)).toBe(want)
        shared.fill(0xff, address - 20, address + bytes.length + 20) // what is around does not matter
        shared.set(bytes, address)
        expect(hash(address, bytes.length)).toBe(want)
        if (bytes.length === 0) return
        const flipped = bytes.slice()
        flipped[(bit >> 3) % bytes.length] ^= 1 << (bit & 7)
        expect(blockHash(flipped)).not.toBe(want)
      }),
      { numRuns: 300 },
    )
  })

  test('never changes: folders that are out there have it', () => {
    const bytes = Uint8Array.from({ length: 1000 }, (_, i) => i * i)
    expect([0, 1, 127, 128, 1000].map(size => blockHash(bytes.subarray(0, size)).toString(16))).toEqual([
      'd77cfb503bc3f54',
      'dc3c8fe75ddebaca',
      '6876888a571a52cb',
      '76478b9d0ce2c834',
      '8c736cbfa148d280',
    ])
  })
})

const shapes = fc
  .record({
    files: fc.integer({ min: 1, max: 3 }),
    records: fc.integer({ min: 1, max: 4 }),
    recordBytes: fc.integer({ min: 1, max: 300 }),
    block: fc.nat(),
  })
  .map(({ block, ...shape }): BlockShape => ({ ...shape, blockBytes: 1 + (block % shape.recordBytes) }))

/** Files of random bytes, and their checksums as the converter makes them. */
function randomFiles(shape: BlockShape, seed: number): { files: Uint8Array[]; table: BlockChecksums } {
  const random = seededRandom(seed)
  const files = Array.from({ length: shape.files }, () =>
    Uint8Array.from({ length: shape.records * shape.recordBytes }, () => random() * 256),
  )
  const sums = files.flatMap(file => {
    const summer = new BlockSummer(shape)
    // In pieces that know nothing of blocks and records.
    for (let at = 0; at < file.length; ) {
      const end = Math.min(file.length, at + Math.floor(random() * 200))
      summer.push(file.subarray(at, end))
      at = end
    }
    return [...summer.finish()]
  })
  return { files, table: { ...shape, sums: BigUint64Array.from(sums) } }
}

describe('blocks', () => {
  test('of an expert are pieces that disks are fast with, at places where direct reads may begin', () => {
    expect(expertBlockBytes(57_344)).toBe(57_344)
    expect(expertBlockBytes(1_769_472)).toBe(442_368)
    expect(expertBlockBytes(7_077_888)).toBe(1_769_472)
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 27 }), count => {
        const size = count * 64
        const block = expertBlockBytes(size)
        const blocks = Math.ceil(size / block)
        expect(blocks).toBeLessThanOrEqual(4)
        expect(block === size || block % 4096 === 0).toBe(true)
      }),
    )
  })

  test('cover a range without gaps, never cross a record, and hold the hash of their bytes', () => {
    fc.assert(
      fc.property(shapes, fc.nat(), fc.nat(), fc.nat(), (shape, seed, from, length) => {
        const { files, table } = randomFiles(shape, seed)
        expect(table.sums.length).toBe(shape.files * shape.records * blocksPerRecord(shape))
        for (const [file, bytes] of files.entries()) {
          const offset = from % bytes.length
          const size = 1 + (length % (bytes.length - offset))
          const blocks = [...blocksOf(table, file, offset, size)]
          expect(blocks[0].at).toBeLessThanOrEqual(offset)
          const last = blocks[blocks.length - 1]
          expect(last.at + last.size).toBeGreaterThanOrEqual(offset + size)
          for (const [i, { at, size, sum }] of blocks.entries()) {
            if (i > 0) expect(at).toBe(blocks[i - 1].at + blocks[i - 1].size)
            expect(Math.floor(at / shape.recordBytes)).toBe(Math.floor((at + size - 1) / shape.recordBytes))
            expect(blockHash(bytes.subarray(at, at + size))).toBe(sum)
          }
        }
      }),
      { numRuns: 60 },
    )
  })

  test('a record that is not whole is no record', () => {
    const summer = new BlockSummer({ recordBytes: 10, blockBytes: 4 })
    summer.push(new Uint8Array(17))
    expect(() => summer.finish()).toThrow('not whole')
  })
})

describe('the file of checksums', () => {
  test('comes back as it was written, and is refused for another model', () => {
    fc.assert(
      fc.property(shapes, fc.nat(), (shape, seed) => {
        const { table } = randomFiles(shape, seed)
        const bytes = formatChecksums(table)
        expect(parseChecksums(bytes, shape, 'x')).toEqual(table)
        for (const field of ['files', 'records', 'recordBytes'] as const) {
          const other = { ...shape, [field]: shape[field] + 1 }
          expect(() => parseChecksums(bytes, other, 'x')).toThrow(FormatError)
        }
      }),
      { numRuns: 30 },
    )
  })

  test('damaged in any way gives a table of the right size or a typed error', () => {
    const shape = { files: 2, records: 3, recordBytes: 100, blockBytes: 30 }
    const sound = formatChecksums(randomFiles(shape, 1).table)
    fc.assert(
      fc.property(fc.nat(sound.length), fc.nat(40), fc.uint8Array({ maxLength: 40 }), (at, drop, insert) => {
        const bytes = Uint8Array.from([...sound.subarray(0, at), ...insert, ...sound.subarray(at + drop)])
        try {
          const table = parseChecksums(bytes, shape, 'x')
          expect(table.sums.length).toBe(shape.files * shape.records * blocksPerRecord(table))
        } catch (error) {
          expect(error).toBeInstanceOf(FormatError)
        }
      }),
      { numRuns: 300 },
    )
  })
})

describe('a checked source', () => {
  /** A source whose bytes a test changes; what is read is counted. */
  function changing(bytes: Uint8Array): ByteSource & { reads: number; forgotten: number[] } {
    const inner = memorySource(bytes, 'file')
    return {
      ...inner,
      reads: 0,
      forgotten: [],
      async read(offset, target) {
        this.reads++
        await inner.read(offset, target)
      },
      forget(offset) {
        this.forgotten.push(offset)
      },
    }
  }

  test('gives any range as it is, and none that touches a damaged block', async () => {
    const property = fc.asyncProperty(shapes, fc.nat(), fc.nat(), fc.nat(), fc.nat(), async (shape, seed, a, b, c) => {
      const { files, table } = randomFiles(shape, seed)
      const sound = files[files.length - 1]
      const bytes = sound.slice()
      const source = changing(bytes)
      const open = () => new CheckedSource(source, table, files.length - 1)
      const offset = a % bytes.length
      const size = 1 + (b % (bytes.length - offset))
      const target = new Uint8Array(size)
      await open().read(offset, target)
      expect(target).toEqual(sound.slice(offset, offset + size))
      const damaged = c % bytes.length
      bytes[damaged] ^= 1 << (seed & 7)
      const touched = [...blocksOf(table, files.length - 1, offset, size)].some(
        block => damaged >= block.at && damaged < block.at + block.size,
      )
      const result = await open()
        .read(offset, new Uint8Array(size))
        .catch(error => error)
      if (!touched) expect(result).toBeUndefined()
      else {
        expect(result).toBeInstanceOf(ChecksumError)
        expect(result).toBeInstanceOf(ReadError)
        expect(result).toMatchObject({ code: 'CHECKSUM_MISMATCH', file: 'file', offset })
        expect(source.forgotten.length).toBe(3)
      }
    })
    await fc.assert(property, { numRuns: 25 })
  })

  test('reads again what is whole a moment later', async () => {
    const shape = { files: 1, records: 2, recordBytes: 100, blockBytes: 100 }
    const { files, table } = randomFiles(shape, 5)
    const bytes = files[0].slice()
    const source = changing(bytes)
    bytes[130] ^= 4
    const read = source.read.bind(source)
    source.read = async (offset, target, signal) => {
      await read(offset, target, signal)
      if (source.reads === 2) bytes[130] ^= 4 // the file was being written
    }
    const target = new Uint8Array(100)
    await new CheckedSource(source, table, 0).read(100, target)
    expect(target).toEqual(files[0].slice(100))
    expect(source.reads).toBe(3)
  })

  test('small tensors of one block are checked once', async () => {
    const shape = { files: 1, records: 1, recordBytes: 1000, blockBytes: 64 }
    const { files, table } = randomFiles(shape, 5)
    const source = changing(files[0])
    const checked = new CheckedSource(source, table, 0)
    for (let at = 0; at < 64; at += 4) await checked.read(at, new Uint8Array(4))
    expect(source.reads).toBe(16 + 1)
  })
})
