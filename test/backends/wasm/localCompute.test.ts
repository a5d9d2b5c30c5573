// The wasm backend where nothing is shared, as in a page that is not cross-origin isolated, and with readers that live on
// an event loop, as in any page: the same bits as with threads and files.
import { describe, expect, onTestFinished, test } from 'vitest'
import { Bank, MAX_BANK_BYTES } from '#moeflux/backends/wasm/memory/bank.js'
import type { HostedOptions, WasmHost } from '#moeflux/backends/wasm/platform.js'
import { OutOfMemoryError } from '#moeflux/base/errors.js'
import { startAsyncReaders } from '#moeflux/experts/readers/asyncReaders.js'
import { ReadRing } from '#moeflux/experts/readers/readRing.js'
import { expectSameBits } from '../../support/ops/bands.js'
import { asyncHost, localHost } from '../../support/wasm/wasmHosts.js'
import { evaluate, openDemoOnWasm } from '../../support/wasm/wasmModels.js'

const tokens = Array.from({ length: 150 }, (_, i) => 40 + ((i * 37) % 900))

async function logitsOn(wasmHost: WasmHost | undefined, options: Partial<HostedOptions> = {}) {
  const opened = await openDemoOnWasm({ ...options, wasmHost }, { simd: 'baseline' })
  try {
    const { backend } = opened
    const sequence = backend.createSequence()
    const prompt = await evaluate(
      backend,
      sequence,
      tokens,
      [64, 7, 32].map(n => Math.min(n, backend.chunkTokens)),
    )
    const run = { sequence, tokens: [77], phase: 'decode', output: 'last' } as const
    const [{ logits }] = await backend.step([run])
    return { prompt, decoded: logits as Float32Array, stats: backend.stats(), description: backend.description }
  } finally {
    await opened.close()
  }
}

describe('where nothing is shared', () => {
  test('logits have the bits of the threads, with all experts in memory and with few', async () => {
    const threads = await logitsOn(undefined)
    const local = await logitsOn(localHost)
    expectSameBits(local.prompt, threads.prompt)
    expectSameBits(local.decoded, threads.decoded)
    expect(local.description).toBe('wasm, 1 thread, baseline SIMD, fast')
    const { expertMemory, expertSlots } = local.stats
    const few = await logitsOn(localHost, { expertMemory: (expertMemory / expertSlots) * 24 })
    expectSameBits(few.prompt, threads.prompt)
    expectSameBits(few.decoded, threads.decoded)
    expect(few.stats.expertMisses).toBeGreaterThan(local.stats.expertMisses)
    expect(few.stats.stallSeconds).toBeGreaterThan(0)
    const bytesPerRead = [few, local].map(({ stats }) => stats.bytesRead / (stats.expertMisses + stats.prefetchReads))
    expect(bytesPerRead[0]).toBe(bytesPerRead[1])
  })

  test('an abort ends a step that waits for reads, and the sequence goes on from where it was', async () => {
    let open = false
    const hanging: WasmHost = {
      ...localHost,
      startReaders: request => {
        const files = request.files.map(file => ({
          name: file.name,
          size: file.size,
          close: () => file.close(),
          async read(offset: number, target: Uint8Array) {
            while (!open) await new Promise(resolve => setTimeout(resolve, 5))
            await file.read(offset, target)
          },
        }))
        return startAsyncReaders({ ...request, files, shared: false })
      },
    }
    const opened = await openDemoOnWasm({ wasmHost: hanging }, { simd: 'baseline' })
    const sequence = opened.backend.createSequence()
    const controller = new AbortController()
    const step = opened.backend.step([{ sequence, tokens: [1, 2, 3], phase: 'prompt', output: 'last' }], {
      signal: controller.signal,
    })
    setTimeout(() => controller.abort(new Error('stop')), 20)
    await expect(step).rejects.toThrow('stop')
    expect(sequence.length).toBe(0)
    open = true
    const [{ logits }] = await opened.backend.step([{ sequence, tokens: [1], phase: 'prompt', output: 'last' }])
    expect(logits).not.toBeNull()
    await opened.close()
  })
})

test('a computation that fails in the middle: the model is lost, and says so to everybody', async () => {
  let fails = false
  const failing: WasmHost = {
    ...localHost,
    startReaders: request => {
      const readers = startAsyncReaders({ ...request, shared: false })
      const serve = () => (fails ? Promise.reject(new Error('no more')) : readers.serve())
      return { ...readers, serve }
    },
  }
  const opened = await openDemoOnWasm({ wasmHost: failing, expertMemory: 8 * 57_344 }, { simd: 'baseline' })
  const { backend } = opened
  const sequence = backend.createSequence()
  await evaluate(backend, sequence, [1, 2, 3])
  expect(backend.failure).toBeNull()
  fails = true
  const lost = {
    code: 'DEVICE_LOST',
    message: expect.stringContaining('computing failed: no more; open the model again'),
  }
  await expect(evaluate(backend, sequence, [500, 600, 700])).rejects.toMatchObject(lost)
  fails = false
  await expect(evaluate(backend, sequence, [4])).rejects.toBe(backend.failure)
  expect(sequence.length).toBe(3)
  await opened.close()
})

test('readers on an event loop serve compute threads that block', async () => {
  const threads = await logitsOn(undefined)
  const { expertMemory, expertSlots } = threads.stats
  const budget = { expertMemory: (expertMemory / expertSlots) * 24 }
  const served = await logitsOn(asyncHost, budget)
  expectSameBits(served.prompt, threads.prompt)
  expectSameBits(served.decoded, threads.decoded)
  expect(served.stats.bytesRead).toBeGreaterThan(0)
})

test('a plain ring that is full of reads that were called off makes room', () => {
  const ring = new ReadRing(ReadRing.create(4, 1, false))
  const request = { file: 0, offset: 0, size: 1, bank: 0, target: 0 }
  for (let i = 0; i < 200; i++) {
    ring.submit(i % 3, request, false)
    if (i < 197) expect(ring.cancel(i % 3)).toBe(true)
  }
  expect([ring.takeEntry(true), ring.takeEntry(true), ring.takeEntry(true), ring.takeEntry(true)].sort()).toEqual([
    -1, 0, 1, 2,
  ])
})

test('a system without address space for the largest memory gives a smaller one', () => {
  const { Memory } = WebAssembly
  onTestFinished(() => {
    WebAssembly.Memory = Memory
  })
  WebAssembly.Memory = class extends Memory {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      if ((descriptor.maximum ?? 0) > 100) throw new RangeError('no room')
      super(descriptor)
    }
  }
  const bank = new Bank(0, 65536, MAX_BANK_BYTES)
  bank.allocate(2 ** 20)
  expect(() => bank.allocate(100 * 65536)).toThrow(OutOfMemoryError)
  expect(() => new Bank(0, 101 * 65536, MAX_BANK_BYTES)).toThrow(OutOfMemoryError)
})
