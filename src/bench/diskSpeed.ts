// How fast this disk reads whole experts at random places: the ceiling of streaming, measured the way the streamer reads
// (the same threads, one read per expert) with nothing else to do.
import { ExpertReaderPool } from '../experts/expertReaderPool.js'
import { alignedSharedBuffer } from '../experts/nodeReaders.js'
import { directAlignment } from '../experts/readMode.js'

export interface DiskSpeed {
  readonly depth: number // reads under way at once
  readonly bytesPerSecond: number
  readonly latencyMs: number // mean time of one read
}

export interface DiskMeasurement {
  readonly direct: boolean // past the page cache
  readonly readBytes: number // size of one read
  readonly speeds: readonly DiskSpeed[]
}

export interface DiskMeasurementOptions {
  readonly files: readonly string[]
  readonly fileSize: number // the smallest
  readonly readBytes: number
  readonly depths: readonly number[]
  readonly seconds: number // for each depth
  readonly signal?: AbortSignal
}

const warmUpSeconds = 0.2

export async function measureDisk(options: DiskMeasurementOptions): Promise<DiskMeasurement> {
  const { files, fileSize, readBytes, depths } = options
  const most = Math.max(...depths)
  const stride = Math.ceil(readBytes / directAlignment) * directAlignment
  const pool = new ExpertReaderPool({
    files,
    expertSize: readBytes,
    banks: [alignedSharedBuffer(stride * most)],
    slotBytes: 0,
    reads: 'direct',
    threads: most,
    depth: most,
  })
  try {
    const records = Math.floor(fileSize / readBytes)
    // Threads take a moment to start; none of it is the disk's.
    await measureDepth(pool, { ...options, seconds: warmUpSeconds }, records, stride, most)
    const speeds: DiskSpeed[] = []
    for (const depth of depths) speeds.push(await measureDepth(pool, options, records, stride, depth))
    return { direct: pool.direct, readBytes, speeds }
  } finally {
    await pool.close()
  }
}

async function measureDepth(
  pool: ExpertReaderPool,
  { files, readBytes, seconds, signal }: DiskMeasurementOptions,
  records: number, // per file
  stride: number,
  depth: number,
): Promise<DiskSpeed> {
  const before = pool.totals
  const began = performance.now()
  const until = began + seconds * 1000
  const lane = async (index: number) => {
    do {
      signal?.throwIfAborted()
      const file = Math.floor(Math.random() * files.length)
      const offset = Math.floor(Math.random() * records) * readBytes
      await pool.read(file, offset, readBytes, 0, index * stride, 'demand')
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
