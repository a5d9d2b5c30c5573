// The streamer over real reader threads: every expert arrives whole, faults reach who waits, and closing waits for
// nobody.
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { ExpertReadError, ReadError } from '#moeflux/base/errors.js'
import { memoryGroups } from '#moeflux/base/nodeMemory.js'
import { ABORTED, ExpertStreamer } from '#moeflux/experts/expertStreamer.js'
import { ExpertReaderPool } from '#moeflux/experts/readers/nodeReaderPool.js'
import { type NodeReaders, readMemory, startNodeReaders } from '#moeflux/experts/readers/nodeReaders.js'
import { ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import { chooseReadMode, type ReadMode } from '#moeflux/experts/readers/readMode.js'
import { ReadRing } from '#moeflux/experts/readers/readRing.js'

const layers = 2
const experts = 12
const expertSize = 8192
let folder: string
let files: string[]
const open: NodeReaders[] = []

const byteOf = (layer: number, expert: number) => 1 + layer * experts + expert
const fileBytes = (layer: number) =>
  Buffer.concat(Array.from({ length: experts }, (_, e) => Buffer.alloc(expertSize, byteOf(layer, e))))

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'moeflux-readers-'))
  files = Array.from({ length: layers }, (_, i) => join(folder, `layer_0${i}.bin`))
  files.forEach((file, layer) => {
    writeFileSync(file, fileBytes(layer))
  })
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))
afterEach(async () => {
  for (const readers of open.splice(0)) await readers.close()
})

function start(slots: number, reads: ReadMode, faults?: ReadFaults) {
  const bank = readMemory(slots * expertSize)
  const notices: string[] = []
  const readers = startNodeReaders({
    files,
    expertSize,
    banks: [bank],
    entries: slots,
    slotBytes: slots * expertSize,
    reads,
    faults: faults?.buffer,
    onNotice: line => notices.push(line),
  })
  open.push(readers)
  const ring = new ReadRing(readers.ring)
  const abort = new Int32Array(new SharedArrayBuffer(4))
  const plan = {
    layers,
    experts,
    expertsPerToken: 2,
    expertSize,
    slotBank: new Int32Array(slots),
    slotOffset: Float64Array.from({ length: slots }, (_, i) => i * expertSize),
    policy: 'lrfu' as const,
    prefetch: true,
    fileNames: files,
  }
  const streamer = new ExpertStreamer(plan, ring, abort)
  const batch = new Int32Array(8)
  const compute = (layer: number, wanted: readonly number[]) => {
    const got: number[] = []
    try {
      streamer.request(layer, wanted)
      for (let count = streamer.next(batch); count !== 0; count = streamer.next(batch)) {
        if (count === ABORTED) return 'aborted'
        for (const slot of batch.subarray(0, count)) {
          const bytes = new Uint8Array(bank.buffer, slot * expertSize, expertSize)
          const want = byteOf(layer, streamer.expertOf(slot))
          if (!bytes.every(byte => byte === want)) throw new Error(`slot ${slot} does not hold its expert`)
          got.push(streamer.expertOf(slot))
        }
      }
      return got.sort((a, b) => a - b)
    } finally {
      streamer.release()
    }
  }
  return { streamer, compute, ring, abort, notices, readers }
}

describe.each(['buffered', 'direct'] as const)('reader threads, %s', reads => {
  test('bring the right bytes into the right slots, and count them', () => {
    const { streamer, compute, ring, readers } = start(5, reads)
    expect(readers.direct).toBe(reads === 'direct' && process.platform === 'linux')
    for (let round = 0; round < 40; round++) {
      streamer.beginStep()
      for (let layer = 0; layer < layers; layer++) {
        streamer.guess(layer, [[round % experts, (round * 5) % experts]])
        const wanted = Array.from({ length: experts }, (_, e) => e).filter(e => (e * 7 + round) % 3 !== 0)
        expect(compute(layer, wanted)).toEqual(wanted)
      }
    }
    streamer.drain()
    const totals = ring.totals()
    const { expertMisses, prefetchReads } = streamer.stats
    expect(totals.reads).toBe(expertMisses + prefetchReads)
    expect(totals.bytes).toBe(totals.reads * expertSize)
    expect(totals.latency.reduce((a, b) => a + b)).toBe(totals.reads)
    expect(totals.busySeconds).toBeGreaterThan(0)
    expect(totals.busySeconds).toBeLessThan(totals.seconds + 1e-3)
  })
})

describe('faults', () => {
  test.each(['error', 'short', 'end'] as const)('%s: retried, then an ExpertReadError; the next call works', kind => {
    const faults = new ReadFaults()
    const { compute, ring } = start(4, 'buffered', faults)
    faults.set(kind, { reads: 1 })
    expect(compute(0, [1])).toEqual([1]) // one bad read is only a retry, one that came up short goes on from there
    expect(ring.totals().retries).toBe(kind === 'short' ? 0 : 1)
    faults.set(kind, { file: 1 })
    expect(compute(0, [2])).toEqual([2])
    let error: unknown
    try {
      compute(1, [3, 4])
    } catch (caught) {
      error = caught
    }
    expect(error).toBeInstanceOf(ExpertReadError)
    expect(error).toMatchObject({ layer: 1, file: files[1] })
    expect((error as ExpertReadError).offset).toBe((error as ExpertReadError).expert * expertSize)
    // The other expert's read may still be among its retries. A call that finds it there waits for it, and reads again
    // where it fails.
    faults.set('none')
    expect(compute(1, [3, 4])).toEqual([3, 4])
  })

  test('a file that is truncated while open, and whole again later', () => {
    const { compute } = start(4, 'buffered')
    expect(compute(1, [0])).toEqual([0])
    truncateSync(files[1], 5 * expertSize + 100)
    try {
      expect(compute(1, [4])).toEqual([4])
      expect(() => compute(1, [5])).toThrow('the file is too short')
    } finally {
      writeFileSync(files[1], fileBytes(1))
    }
    expect(compute(1, [5])).toEqual([5])
  })

  test('a disk a hundred times slower: an abort returns promptly, and what was begun ends in the cache', () => {
    const faults = new ReadFaults()
    const { compute, abort, streamer, ring } = start(4, 'buffered', faults)
    faults.set('none', { delayMs: 300 })
    Atomics.store(abort, 0, 1)
    const began = performance.now()
    expect(compute(0, [1, 2])).toBe('aborted')
    expect(performance.now() - began).toBeLessThan(280)
    Atomics.store(abort, 0, 0)
    streamer.drain()
    const reads = ring.totals().reads
    expect(compute(0, [1])).toEqual([1])
    expect(ring.totals().reads - reads + streamer.stats.expertHits).toBe(1)
  })
})

describe('a dead reader', () => {
  test('does not block whoever asks for more than the ring holds', () => {
    const ring = new ReadRing(ReadRing.create(4, 1))
    ring.readerLost()
    const request = { file: 0, offset: 0, size: expertSize, bank: 0, target: 0 }
    for (let i = 0; i < 200; i++) {
      ring.submit(i % 4, request, true)
      expect(ring.cancel(i % 4)).toBe(true)
    }
  })
})

describe('closing', () => {
  test('ends the threads also when reads are queued', async () => {
    const faults = new ReadFaults()
    const { streamer, readers } = start(12, 'buffered', faults)
    faults.set('none', { delayMs: 20 })
    streamer.request(0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    await readers.close()
    await readers.close()
  })

  test('refuses a file that is not there', () => {
    const missing = join(folder, 'layer_99.bin')
    const options = { files: [files[0], missing], expertSize, banks: [], entries: 1, slotBytes: 0 }
    expect(() => startNodeReaders(options)).toThrow(ReadError)
  })
})

describe('reader pool', () => {
  const poolOn = (faults?: ReadFaults, depth?: number, yieldsToDemands = false) => {
    const bank = readMemory(experts * expertSize)
    const options = { files, expertSize, banks: [bank], slotBytes: 0, faults: faults?.buffer, depth, yieldsToDemands }
    return { pool: new ExpertReaderPool(options), bank }
  }

  test('resolves each read when its bytes are there, more reads than entries too', async () => {
    const { pool, bank } = poolOn(undefined, 3)
    await Promise.all(
      Array.from({ length: experts }, async (_, e) => {
        await pool.read(1, e * expertSize, expertSize, 0, e * expertSize, e % 2 ? 'prefetch' : 'demand')
        const bytes = new Uint8Array(bank.buffer, e * expertSize, expertSize)
        expect(bytes.every(byte => byte === byteOf(1, e))).toBe(true)
      }),
    )
    expect(pool.totals.bytes).toBe(experts * expertSize)
    await pool.close()
  })

  test('is called by a read that takes longer than it looks for', async () => {
    const faults = new ReadFaults()
    const { pool, bank } = poolOn(faults)
    for (const delayMs of [1, 3, 30]) {
      faults.set('none', { delayMs })
      for (let e = 0; e < 6; e++) {
        const priority = e % 2 ? 'prefetch' : 'demand'
        await Promise.all([
          pool.read(0, 0, expertSize, 0, 0, 'demand'),
          pool.read(1, 0, expertSize, 0, expertSize, priority),
        ])
      }
    }
    expect([...new Uint8Array(bank.buffer, expertSize - 1, 2)]).toEqual([byteOf(0, 0), byteOf(1, 0)])
    await pool.close()
  })

  test('begins no read ahead while somebody waits, where it is told to', async () => {
    const faults = new ReadFaults()
    const { pool } = poolOn(faults, undefined, true)
    await pool.read(0, 0, expertSize, 0, 0, 'demand') // the threads are up
    faults.set('none', { delayMs: 60 })
    const order: string[] = []
    const read = async (name: string, expert: number, priority: 'demand' | 'prefetch') => {
      await pool.read(1, expert * expertSize, expertSize, 0, expert * expertSize, priority)
      order.push(name)
    }
    const first = read('demand', 1, 'demand')
    const second = read('ahead', 2, 'prefetch')
    const third = read('promoted', 3, 'prefetch')
    pool.promote(1, 3 * expertSize)
    await Promise.all([first, third])
    expect(order.toSorted()).toEqual(['demand', 'promoted'])
    await second
    expect(order[2]).toBe('ahead')
    await pool.close()
  })

  test('takes back a read that has not begun, here or in the ring, and no other', async () => {
    const faults = new ReadFaults()
    const { pool, bank } = poolOn(faults, 3, true)
    faults.pickAndHold(0)
    const first = pool.read(0, 0, expertSize, 0, 0, 'demand')
    while (!faults.isWaiting) await new Promise(resolve => setTimeout(resolve, 1))
    const ended: number[] = []
    const ahead = [1, 2, 3, 4].map(async e => {
      await pool.read(0, e * expertSize, expertSize, 0, e * expertSize, 'prefetch')
      ended.push(e)
    })
    expect([0, 1, 4, 5].map(e => pool.callOff(0, e * expertSize))).toEqual([false, true, true, false])
    faults.letGo()
    await Promise.all([first, ahead[1], ahead[2]])
    // Its entry is used again: it is read once, as what it is then.
    await pool.read(1, 5 * expertSize, expertSize, 0, 5 * expertSize, 'demand')
    expect(ended.toSorted()).toEqual([2, 3])
    expect(pool.totals.bytes).toBe(4 * expertSize)
    const firstBytes = [0, 1, 2, 3, 4, 5].map(e => new Uint8Array(bank.buffer)[e * expertSize])
    expect(firstBytes).toEqual([byteOf(0, 0), 0, byteOf(0, 2), byteOf(0, 3), 0, byteOf(1, 5)])
    await pool.close()
  })

  test('rejects a failed read by name, and whatever has not begun when it closes', async () => {
    const faults = new ReadFaults()
    const { pool } = poolOn(faults)
    faults.set('error', { file: 0 })
    await expect(pool.read(0, 0, expertSize, 0, 0, 'demand')).rejects.toThrow('reading failed with EIO')
    faults.set('none', { delayMs: 20 })
    const reads = Array.from({ length: 40 }, () => pool.read(1, 0, expertSize, 0, 0, 'demand'))
    const settled = Promise.allSettled(reads)
    await pool.close()
    const rejected = (await settled).filter(read => read.status === 'rejected')
    expect(rejected.length).toBeGreaterThan(0)
    expect(rejected[0].reason).toBeInstanceOf(ReadError)
    await expect(pool.read(1, 0, expertSize, 0, 0, 'demand')).rejects.toThrow('closed')
  })
})

describe('direct or buffered', () => {
  const facts = { wanted: 'auto' as ReadMode, expertSize: 4096, expertBytes: 10e9, freeBytes: 20e9, supported: true }

  test('takes direct reads when the experts exceed free memory', () => {
    expect(chooseReadMode(facts).direct).toBe(false)
    expect(chooseReadMode({ ...facts, freeBytes: 5e9 }).direct).toBe(true)
    expect(chooseReadMode({ ...facts, wanted: 'direct' }).direct).toBe(true)
    expect(chooseReadMode({ ...facts, wanted: 'buffered', freeBytes: 0 }).direct).toBe(false)
    expect(chooseReadMode({ ...facts, freeBytes: 0, supported: false }).direct).toBe(false)
    expect(chooseReadMode({ ...facts, freeBytes: 0, expertSize: 4160 }).direct).toBe(false)
  })

  const notice = async (file: string, size: number) => {
    const notices: string[] = []
    const options = { banks: [], entries: 1, slotBytes: 0, reads: 'direct' as const, threads: 1 }
    const readers = startNodeReaders({
      ...options,
      files: [file],
      expertSize: size,
      onNotice: line => notices.push(line),
    })
    expect(readers.direct).toBe(false)
    await readers.close()
    return notices
  }

  // Only Linux has O_DIRECT, and a /proc that refuses it.
  test.runIf(process.platform === 'linux')(
    'falls back with a notice where experts or filesystem do not allow it',
    async () => {
      const prefix = 'experts are read through the page cache:'
      expect(await notice(files[0], 1000)).toEqual([`${prefix} an expert of 1000 bytes is no multiple of 4096`])
      const refused = `${prefix} the filesystem refuses direct reads (EINVAL)`
      expect(await notice('/proc/self/status', 4096)).toEqual([refused])
    },
  )
})

describe('free memory', () => {
  const groupFolder = (name: string, contents: Record<string, string>) => {
    const root = join(folder, name)
    for (const [path, text] of Object.entries(contents)) {
      mkdirSync(join(root, path, '..'), { recursive: true })
      writeFileSync(join(root, path), text)
    }
    return root
  }

  test('reads the limits of both cgroup versions, of all groups above, and counts page cache as free', () => {
    const v2 = groupFolder('v2', {
      'proc/self/cgroup': '0::/a/b\n',
      'sys/fs/cgroup/a/memory.max': '2000\n',
      'sys/fs/cgroup/a/memory.current': '900\n',
      'sys/fs/cgroup/a/memory.stat': 'anon 300\ninactive_file 400\nactive_file 100\n',
      'sys/fs/cgroup/a/b/memory.max': 'max\n',
      'sys/fs/cgroup/a/b/memory.current': '800\n',
    })
    expect(memoryGroups(v2)).toEqual([{ limit: 2000, used: 400 }])
    const v1 = groupFolder('v1', {
      'proc/self/cgroup': '9:cpu:/\n4:memory:/job\n',
      'sys/fs/cgroup/memory/job/memory.limit_in_bytes': '1000\n',
      'sys/fs/cgroup/memory/job/memory.usage_in_bytes': '600\n',
      'sys/fs/cgroup/memory/job/memory.stat': 'total_inactive_file 50\n',
    })
    expect(memoryGroups(v1)).toEqual([{ limit: 1000, used: 550 }])
    expect(memoryGroups(join(folder, 'nothing'))).toEqual([])
  })
})
