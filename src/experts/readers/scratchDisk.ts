// The disk's speed where no large model lies on it: writes a file, reads it at random, removes it.
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { writing } from '../../files/diskFull.js'
import { ChunkWriter } from './nodeChunkWriter.js'
import { type DiskMeasurement, measureDisk } from './nodeDiskSpeed.js'
import { DIRECT_ALIGNMENT } from './readMode.js'

const LEAST_BYTES = 256 << 20
const LEAST_READS = 64

export async function measureScratchDisk(
  folder: string,
  readBytes: number,
  depths: readonly number[],
  signal?: AbortSignal,
): Promise<DiskMeasurement> {
  // Past the page cache, whatever the size: this is to be the disk's speed.
  readBytes = Math.ceil(readBytes / DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT
  await mkdir(folder, { recursive: true })
  const file = join(folder, `disk-test-${process.pid}.bin`)
  const piece = new Uint8Array(1 << 20).map((_, i) => (i * 2654435761) >>> 16)
  const fileSize = Math.max(LEAST_BYTES, LEAST_READS * readBytes)
  try {
    await writing(file, async () => {
      const writer = await ChunkWriter.create(file)
      try {
        while (writer.size < fileSize) {
          signal?.throwIfAborted()
          await writer.append(piece)
        }
      } catch (error) {
        await writer.discard()
        throw error
      }
      await writer.finish()
    })
    return await measureDisk({ files: [file], fileSize, readBytes, depths, seconds: 0.7, signal })
  } finally {
    await rm(file, { force: true })
  }
}
