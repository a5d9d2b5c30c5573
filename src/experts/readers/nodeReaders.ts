// Starts and stops the reader threads of one model in Node, and opens its expert files: buffered, or with O_DIRECT where
// that is better and the filesystem takes it. Threads of our own, because libuv's pool has four and others use it too.
import { closeSync, constants, fstatSync, readSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { FormatError, messageOf, ReadError } from '../../base/errors.js'
import { availableMemory } from '../../base/nodeMemory.js'
import { openRegularSync } from '../../base/regularFile.js'
import type { WasmMemory } from '../../base/wasmTypes.js'
import type { BlockChecksums } from '../../files/packed/blockChecksums.js'
import type { ReaderWorkerData } from './nodeReaderWorker.js'
import { chooseReadMode, DIRECT_ALIGNMENT, type ReadMode } from './readMode.js'
import { ReadRing } from './readRing.js'

export interface ReaderOptions {
  readonly files: readonly string[] // paths, one per layer
  readonly expertSize: number
  readonly banks: readonly WasmMemory[] // shared ones that reads go into
  /** What the files must hold; each read is of whole blocks then. */
  readonly checksums?: BlockChecksums | null
  readonly entries: number // reads that can be asked for at once: one per slot
  readonly slotBytes: number // memory that the slots will fill beside what is in use now
  readonly reads?: ReadMode
  readonly threads?: number
  /** Threads that never read ahead: a demand always finds one that is free or soon will be. Default: half of them. */
  readonly demandThreads?: number
  /** Reads ahead do not begin while a demand is open. */
  readonly yieldsToDemands?: boolean
  readonly faults?: SharedArrayBuffer
  readonly onNotice?: (line: string) => void
  readonly onAnswer?: () => void // a read has ended and the asker was asleep
  readonly onLost?: () => void // a thread died
}

export interface NodeReaders {
  readonly ring: SharedArrayBuffer
  readonly direct: boolean
  /** Keep the process alive while reads are awaited. */
  setRef(on: boolean): void
  /** Ends the threads after the reads they are in, and closes the files. */
  close(): Promise<void>
}

// A thread of Node costs 8 MB and 30 ms. What two of them read within a moment does not need eight.
const MANY_THREADS = 8
const FEW_THREADS = 2
const MANY_BYTES = 256 * 2 ** 20 // of all experts

/** Threads for experts of so many bytes altogether. */
export function readersFor(expertBytes: number): number {
  return expertBytes < MANY_BYTES ? FEW_THREADS : MANY_THREADS
}

export function startNodeReaders(options: ReaderOptions): NodeReaders {
  const { descriptors, direct, expertBytes } = openExpertFiles(options)
  const threads = options.threads ?? readersFor(expertBytes)
  const buffer = ReadRing.create(options.entries, threads)
  const ring = new ReadRing(buffer)
  ring.yieldsToDemands = options.yieldsToDemands === true
  const checksums = options.checksums ? shared(options.checksums) : null
  const ends: Promise<void>[] = []
  const workers: Worker[] = []
  for (let index = 0; index < threads; index++) {
    const data: ReaderWorkerData = {
      ring: buffer,
      role: { index, takesAhead: index >= (options.demandThreads ?? threads >> 1) },
      banks: options.banks,
      descriptors,
      own:
        process.versions.deno === undefined ? null : { files: options.files, flags: direct ? constants.O_DIRECT : 0 },
      checksums,
      faults: options.faults,
      calls: options.onAnswer !== undefined,
    }
    const worker = new Worker(new URL('./nodeReaderWorker.js', import.meta.url), {
      workerData: data,
      name: `moeflux reader ${index}`,
      resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2, stackSizeMb: 1 },
    })
    if (options.onAnswer) worker.on('message', options.onAnswer)
    worker.on('error', () => {})
    ends.push(
      new Promise(resolve => {
        worker.once('exit', () => {
          if (!ring.stopped) {
            ring.readerLost()
            options.onLost?.()
          }
          resolve()
        })
      }),
    )
    worker.unref()
    workers.push(worker)
  }
  const setRef = (on: boolean) => {
    for (const worker of workers) on ? worker.ref() : worker.unref()
  }
  let closing: Promise<void> | undefined
  return {
    ring: buffer,
    direct,
    setRef,
    close() {
      closing ??= (async () => {
        ring.stop()
        setRef(true)
        await Promise.all(ends)
        for (const descriptor of descriptors) closeSync(descriptor)
      })()
      return closing
    },
  }
}

function openExpertFiles(options: ReaderOptions): { descriptors: number[]; direct: boolean; expertBytes: number } {
  const wanted = options.reads ?? 'auto'
  const descriptors: number[] = []
  let expertBytes = 0
  try {
    for (const file of options.files) {
      const descriptor = openRegularSync(file)
      descriptors.push(descriptor)
      expertBytes += fstatSync(descriptor).size
    }
  } catch (error) {
    for (const descriptor of descriptors) closeSync(descriptor)
    if (error instanceof FormatError) throw error
    const file = options.files[descriptors.length]
    throw new ReadError(file, 0, options.expertSize, messageOf(error), { cause: error })
  }
  const choice = chooseReadMode({
    wanted,
    expertSize: options.expertSize,
    expertBytes,
    freeBytes: Math.max(0, availableMemory().bytes - options.slotBytes),
    supported: constants.O_DIRECT !== undefined,
  })
  if (!choice.direct) {
    if (wanted === 'direct') options.onNotice?.(`experts are read through the page cache: ${choice.reason}`)
    return { descriptors, direct: false, expertBytes }
  }
  const refused = reopenDirect(options.files, descriptors)
  if (refused)
    options.onNotice?.(`experts are read through the page cache: the filesystem refuses direct reads (${refused})`)
  return { descriptors, direct: refused === null, expertBytes }
}

/** Replaces the descriptors by direct ones, all or none; returns why not. */
function reopenDirect(files: readonly string[], descriptors: number[]): string | null {
  const direct: number[] = []
  try {
    for (const file of files) direct.push(openRegularSync(file, constants.O_DIRECT))
    // Some filesystems accept the flag and refuse the read.
    const probe = new Uint8Array(alignedSharedBuffer(DIRECT_ALIGNMENT))
    readSync(direct[0], probe, 0, DIRECT_ALIGNMENT, 0)
  } catch (error) {
    for (const descriptor of direct) closeSync(descriptor)
    return (error as { code?: string }).code ?? String(error)
  }
  for (const descriptor of descriptors) closeSync(descriptor)
  descriptors.splice(0, descriptors.length, ...direct)
  return null
}

/** One copy for all threads. */
function shared(checksums: BlockChecksums): BlockChecksums {
  const sums = new BigUint64Array(new SharedArrayBuffer(checksums.sums.byteLength))
  sums.set(checksums.sums)
  return { ...checksums, sums }
}

/** A memory for reads; its address suits direct ones, because that of a WASM memory begins at a page. */
export function readMemory(bytes: number): WebAssembly.Memory {
  const pages = Math.max(1, Math.ceil(bytes / 65536))
  return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
}

export function alignedSharedBuffer(bytes: number): SharedArrayBuffer {
  return readMemory(bytes).buffer as unknown as SharedArrayBuffer
}
