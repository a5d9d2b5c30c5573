// Measures, when a model is opened, what chooseWay needs to know: some 150 ms, half of them to have memory that was never
// touched. Slots are empty then, and what is written there is overwritten by experts.
import { copyShared } from '../../../base/sharedMemory.js'
import type { ProcessorRates, TierRates } from '../../../experts/tierSpeed.js'
import { bufferUsage, mapMode } from '../../../gpu/device/gpuFlags.js'
import { createChecked } from '../../../gpu/device/gpuMemory.js'
import type { HostEntry, HostWorkers } from '../../wasm/workers/expertWorkers.js'

const SLOTS = 24 // that experts come from in turn: more than caches near a processor hold
const ROUNDS = 7
/** Engines compile WASM twice, the second time better and while it runs: only then does it tell anything. */
const WARM_UP_MS = 25
const TOKENS = 9
const UPLOADS = 3

export interface MeasuredShape {
  readonly expertSize: number // bytes
  readonly expertsPerToken: number
  readonly hiddenSize: number
  readonly maxRows: number // of a job
  readonly isCountGiven: boolean // of threads
}

export async function measureTiers(device: GPUDevice, workers: HostWorkers, shape: MeasuredShape): Promise<TierRates> {
  const bytes = touchSlots(workers, shape.expertSize)
  const processors: ProcessorRates[] = []
  for (const threads of shape.isCountGiven ? [workers.threads] : threadCounts(workers.threads)) {
    workers.use(threads)
    processors.push({ threads, ...(await measureProcessors(workers, shape)) })
  }
  return { processors, ...(await measureBus(device, bytes)) }
}

/** All, three quarters and half of them; ascending. */
function threadCounts(most: number): number[] {
  const counts = [most / 2, most * 0.75, most].map(count => Math.max(1, Math.round(count)))
  return [...new Set(counts)].sort((a, b) => a - b)
}

/** Untouched memory is all one page of zeros, which is read faster than memory. Returns the last slot. */
function touchSlots({ slots, memories }: HostWorkers, expertSize: number): Uint8Array {
  const touched = slots.slice(0, SLOTS).map(({ bank, address }) => {
    return new Uint8Array(memories[bank].buffer, address, expertSize).fill(0x3c) // scales and weights of no trouble
  })
  return touched[touched.length - 1]
}

async function measureProcessors(
  workers: HostWorkers,
  { hiddenSize, maxRows, expertsPerToken }: MeasuredShape,
): Promise<Omit<ProcessorRates, 'threads'>> {
  const slots = Math.min(SLOTS, workers.slots.length)
  const tokens = Math.min(TOKENS, maxRows)
  let at = 0
  const job = async (experts: number, rows: number) => {
    const entries: HostEntry[] = Array.from({ length: Math.min(experts, slots) }, () => ({
      slot: at++ % slots,
      rows: Array.from({ length: rows }, (_, row) => row),
      weights: new Array<number>(rows).fill(1 / rows),
    })).sort((a, b) => a.slot - b.slot)
    const hidden = new Float32Array(rows * hiddenSize).fill(0.5)
    const began = performance.now()
    const computing = workers.compute(0, hidden, entries)
    workers.spin()
    await computing
    return (performance.now() - began) / 1000
  }
  const few = Math.max(1, expertsPerToken >> 2) // experts that a token misses of a layer
  const more = Math.min(expertsPerToken, slots) - few
  for (const began = performance.now(); performance.now() - began < WARM_UP_MS; ) await job(few + more, tokens)
  const jobs = [() => job(few, 1), () => job(few, tokens), () => job(few + more, 1)]
  const [oneToken, manyTokens, manyExperts] = await quickest(jobs)
  const expertSeconds = Math.max(1e-7, more > 0 ? (manyExperts - oneToken) / more : oneToken / few)
  const tokenSeconds = tokens > 1 ? Math.max(1e-8, (manyTokens - oneToken) / (few * (tokens - 1))) : expertSeconds
  return { jobSeconds: Math.max(0, oneToken - few * expertSeconds), expertSeconds, tokenSeconds }
}

/** As ExpertUploads sends experts, and as DecodePass reads choices back. */
async function measureBus(device: GPUDevice, bytes: Uint8Array): Promise<Omit<TierRates, 'processors'>> {
  const size = Math.ceil(bytes.length / 4) * 4
  const descriptors: GPUBufferDescriptor[] = [
    { label: 'measured target', size, usage: bufferUsage.storage | bufferUsage.copyDst | bufferUsage.copySrc },
    { label: 'measured readback', size: 256, usage: bufferUsage.mapRead | bufferUsage.copyDst },
    ...Array.from({ length: UPLOADS }, () => ({
      label: 'measured staging',
      size,
      usage: bufferUsage.mapWrite | bufferUsage.copySrc,
      mappedAtCreation: true,
    })),
  ]
  const buffers = await createChecked(device, descriptors, 'measuring')
  const [target, readback, ...staging] = buffers
  try {
    const roundTrip = async (uploads: readonly GPUBuffer[]) => {
      const began = performance.now()
      const encoder = device.createCommandEncoder()
      for (const buffer of uploads) {
        copyShared(bytes, new Uint8Array(buffer.getMappedRange()))
        buffer.unmap()
        encoder.copyBufferToBuffer(buffer, 0, target, 0, size)
      }
      encoder.copyBufferToBuffer(target, 0, readback, 0, Math.min(size, 256))
      device.queue.submit([encoder.finish()])
      await readback.mapAsync(mapMode.read, 0, Math.min(size, 256))
      const seconds = (performance.now() - began) / 1000
      readback.unmap()
      await Promise.all(uploads.map(buffer => buffer.mapAsync(mapMode.write)))
      return seconds
    }
    const [roundTripSeconds, seconds] = await quickest([() => roundTrip([]), () => roundTrip(staging)])
    return { roundTripSeconds, uploadSeconds: Math.max(1e-7, (seconds - roundTripSeconds) / UPLOADS) }
  } finally {
    for (const buffer of buffers) buffer.destroy()
  }
}

/** Of each, by turns: what else goes on makes all of them slower, and none of them faster. */
async function quickest(measures: readonly (() => Promise<number>)[]): Promise<number[]> {
  const best = measures.map(() => Number.POSITIVE_INFINITY)
  for (let round = 0; round < ROUNDS; round++) {
    for (const [i, measure] of measures.entries()) best[i] = Math.min(best[i], await measure())
  }
  return best
}
