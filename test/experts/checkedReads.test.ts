// Reader threads that compare what they read with checksums: whole experts into slots, and pieces of large ones for a GPU,
// through the page cache and past it.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { nodeExpertReader } from '#moeflux/backends/webgpu/experts/nodeExpertReader.js'
import { ExpertReaderPool } from '#moeflux/experts/readers/nodeReaderPool.js'
import { readMemory } from '#moeflux/experts/readers/nodeReaders.js'
import { ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import { type BlockChecksums, BlockSummer, expertBlockBytes } from '#moeflux/files/packed/blockChecksums.js'
import type { ExpertFiles } from '#moeflux/files/packed/packedModel.js'
import { overwrite } from '../support/faults/poison.js'
import { seededRandom } from '../support/random.js'

const EXPERTS = 3
const EXPERT_SIZE = 300 * 4096 // four pieces
const LAYERS = 2

let folder: string
let files: string[]
let checksums: BlockChecksums

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'moeflux-checked-'))
  const random = seededRandom(3)
  const shape = { files: LAYERS, records: EXPERTS, recordBytes: EXPERT_SIZE, blockBytes: expertBlockBytes(EXPERT_SIZE) }
  const sums: bigint[] = []
  files = Array.from({ length: LAYERS }, (_, layer) => {
    const words = Uint32Array.from({ length: (EXPERTS * EXPERT_SIZE) / 4 }, () => random() * 2 ** 32)
    const summer = new BlockSummer(shape)
    summer.push(new Uint8Array(words.buffer))
    sums.push(...summer.finish())
    const path = join(folder, `layer_0${layer}.bin`)
    writeFileSync(path, words)
    return path
  })
  checksums = { ...shape, sums: BigUint64Array.from(sums) }
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** Flips one bit of a file for as long as `during` takes. */
async function flipped(layer: number, at: number, during: () => Promise<void>): Promise<void> {
  const before = readFileSync(files[layer])
  const bytes = Buffer.from(before)
  bytes[at] ^= 0x10
  overwrite(files[layer], bytes)
  try {
    await during()
  } finally {
    overwrite(files[layer], before)
  }
}

const recordOf = (layer: number, expert: number) =>
  readFileSync(files[layer]).subarray(expert * EXPERT_SIZE, (expert + 1) * EXPERT_SIZE)

describe.each(['buffered', 'direct'] as const)('%s reads', reads => {
  test('of whole experts fail for each bit that is another, at both ends and where blocks meet', async () => {
    const bank = readMemory(2 * EXPERT_SIZE)
    const pool = new ExpertReaderPool({
      ...{ files, expertSize: EXPERT_SIZE, banks: [bank], checksums, slotBytes: 0, reads, threads: 2 },
    })
    const read = (expert: number) => pool.read(1, expert * EXPERT_SIZE, EXPERT_SIZE, 0, EXPERT_SIZE, 'demand')
    try {
      await read(1)
      expect(Buffer.compare(new Uint8Array(bank.buffer, EXPERT_SIZE, EXPERT_SIZE), recordOf(1, 1))).toBe(0)
      const { blockBytes } = checksums
      for (const at of [0, blockBytes - 1, blockBytes, 3 * blockBytes + 7, EXPERT_SIZE - 1]) {
        await flipped(1, EXPERT_SIZE + at, async () => {
          await expect(read(1), `bit ${at}`).rejects.toThrow('do not match their checksum')
          await read(0) // its neighbours are sound
          await read(2)
        })
      }
      await read(1)
      expect(pool.totals.retries).toBe(5 * 2)
    } finally {
      await pool.close()
    }
  })

  test('of pieces for a GPU: the expert fails, with its place, and is right again after', async () => {
    const faults = new ReadFaults()
    const experts = {
      layout: { expertSize: EXPERT_SIZE },
      files: files.map(name => ({ name })),
      checksums,
    } as unknown as ExpertFiles
    const options = { precision: 'fast', expertsPerToken: 1, expertReads: reads, readFaults: faults.buffer } as const
    const reader = nodeExpertReader(experts, files, options, 2)
    const target = new Uint8Array(EXPERT_SIZE)
    try {
      await reader.read(0, 2, target, 'demand')
      expect(Buffer.compare(target, recordOf(0, 2))).toBe(0)
      await flipped(0, 3 * EXPERT_SIZE - 1, async () => {
        await expect(reader.read(0, 2, target, 'demand')).rejects.toMatchObject({
          file: files[0],
          detail: expect.stringContaining('do not match their checksum'),
        })
        await reader.read(0, 1, target, 'prefetch')
      })
      faults.set('flip', { reads: 2 }) // one bit of two pieces, once
      await reader.read(0, 2, target, 'demand')
      expect(Buffer.compare(target, recordOf(0, 2))).toBe(0)
    } finally {
      await reader.close()
    }
  })
})
