// How fast a disk reads whole experts at random offsets, from files of a model or from one that is
// written for it: the ceiling of streaming. Reads as the streamer does (the same threads, one read
// per expert), with nothing else to do.
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { writing } from '../../files/diskFull.js'
import { ChunkWriter } from './nodeChunkWriter.js'
import { ExpertReaderPool } from './nodeReaderPool.js'
import { readMemory } from './nodeReaders.js'
import { DIRECT_ALIGNMENT } from './readMode.js'

interface DiskSpeed {
  readonly depth: number // reads under way at once
  readonly bytesPerSecond: number
  readonly latencyMs: number // mean time of one read
}

export interface DiskMeasurement {
  readonly direct: boolean // past the page cache
  readonly readBytes: number // size of one read
  readonly speeds: readonly DiskSpeed[]
}

/** Where to read, and how much at once. */
interface DiskPlace {
  readonly files: readonly string[]
  readonly fileSize: number // the smallest
  readonly readBytes: number
}

interface DiskMeasurementOptions extends DiskPlace {
  readonly depths: readonly number[]
  readonly seconds: number // for each depth
  readonly signal?: AbortSignal
}

const WARM_UP_SECONDS = 0.2

export async function measureDisk(options: DiskMeasurementOptions): Promise<DiskMeasurement> {
  const { depths, seconds, readBytes, signal } = options
  const most = Math.max(...depths)
  const meter = new DiskMeter(options, most)
  try {
    // Threads take a moment to start; none of it is the disk's.
    await meter.measure(most, WARM_UP_SECONDS, signal)
    const speeds: DiskSpeed[] = []
    for (const depth of depths) speeds.push(await meter.measure(depth, seconds, signal))
    return { direct: meter.direct, readBytes, speeds }
  } finally {
    await meter.close()
  }
}

/** Reader threads that measure whenever they are asked to. */
export class DiskMeter {
  private readonly pool: ExpertReaderPool
  private readonly place: DiskPlace
  private readonly stride: number // bytes between the targets of two reads

  constructor(place: DiskPlace, mostDepth: number) {
    const { files, readBytes } = place
    this.place = place
    this.stride = Math.ceil(readBytes / DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT
    this.pool = new ExpertReaderPool({
      files,
      expertSize: readBytes,
      banks: [readMemory(this.stride * mostDepth)],
      slotBytes: 0,
      reads: 'direct',
      threads: mostDepth,
      depth: mostDepth,
    })
  }

  get direct(): boolean {
    return this.pool.direct
  }

  async measure(depth: number, seconds: number, signal?: AbortSignal): Promise<DiskSpeed> {
    const pool = this.pool
    const { files, fileSize, readBytes } = this.place
    const records = Math.floor(fileSize / readBytes)
    const before = pool.totals
    const began = performance.now()
    const until = began + seconds * 1000
    const lane = async (index: number) => {
      do {
        signal?.throwIfAborted()
        const file = Math.floor(Math.random() * files.length)
        const offset = Math.floor(Math.random() * records) * readBytes
        await pool.read(file, offset, readBytes, 0, index * this.stride, 'demand')
      } while (performance.now() < until)
    }
    await Promise.all(Array.from({ length: depth }, (_, index) => lane(index)))
    const elapsed = (performance.now() - began) / 1000
    const after = pool.totals
    return {
      depth,
      bytesPerSecond: (after.bytes - before.bytes) / elapsed,
      latencyMs: ((after.seconds - before.seconds) / (after.reads - before.reads)) * 1000,
    }
  }

  close(): Promise<void> {
    return this.pool.close()
  }
}

const LEAST_BYTES = 256 << 20 // of the file
const LEAST_READS = 64

/** The speed of a disk without a large model: writes a file, reads it at random, removes it. */
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
