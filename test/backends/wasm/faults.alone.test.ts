// The wasm backend when things go wrong: aborts, failing disks, dying workers, bad options, and what must be free after.
import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { WasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import type { WorkerPool } from '#moeflux/backends/wasm/workers/workerPool.js'
import { ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import { expectSameBits } from '../../support/ops/bands.js'
import { seededRandom } from '../../support/random.js'
import { setWorkers } from '../../support/wasm/stepPositions.js'
import { evaluate, expectSameSnapshot, fresh, openDemoOnWasm, snapshot } from '../../support/wasm/wasmModels.js'

const random = seededRandom(11)
const prompt = Array.from({ length: 200 }, () => Math.floor(random() * 8000))
const smallCache = 2 * 4 * 57_344 // 2 K experts

test('a storm of aborts leaves every sequence at a token, and no slot or state behind', async () => {
  const opened = await openDemoOnWasm({ expertMemory: smallCache })
  const { backend } = opened
  const sequence = backend.createSequence()
  let aborted = 0
  for (let i = 0; i < 100; i++) {
    const controller = new AbortController()
    const at = sequence.length
    const count = Math.min(prompt.length - at, 1 + Math.floor(random() * 12))
    const run = { sequence, tokens: prompt.slice(at, at + count), phase: 'prompt', output: 'last' } as const
    const timer = sleep(random() * 6).then(() => controller.abort(new Error('enough')))
    try {
      await backend.step([run], { signal: controller.signal })
      expect(sequence.length).toBe(at + count)
    } catch (error) {
      expect((error as Error).message).toBe('enough')
      expect(sequence.length).toBe(at)
      aborted++
    }
    await timer
    if (sequence.length === prompt.length) await sequence.clear()
  }
  expect(aborted).toBeGreaterThan(10)
  const rest = prompt.slice(sequence.length)
  const logits = rest.length > 0 ? await evaluate(backend, sequence, rest) : null
  if (logits) {
    expectSameSnapshot(await snapshot(backend, sequence, logits), await fresh(backend, prompt))
  }
  const { expertSlots, expertSlotsUsed } = backend.stats()
  expect(expertSlotsUsed).toBeLessThanOrEqual(expertSlots)
  sequence.release()
  expect((backend as WasmBackend).runtime.store.pool.pagesInUse).toBe(0)
  await opened.close()
})

test('aborts within milliseconds, for seconds: what comes next is what a fresh sequence computes, in other sequences too', async () => {
  const opened = await openDemoOnWasm({ threads: 3 })
  const { backend } = opened
  const [sequence, other] = [backend.createSequence(), backend.createSequence()]
  const decode = async (which: typeof sequence) => {
    await which.clear()
    let logits: Float32Array = new Float32Array(0)
    for (const token of prompt.slice(0, 3)) {
      const [output] = await backend.step([{ sequence: which, tokens: [token], phase: 'decode', output: 'last' }])
      logits = output.logits as Float32Array
    }
    return logits
  }
  const want = await decode(other)
  let aborted = 0
  const until = performance.now() + 4000
  for (let i = 0; i < 200 && (i < 20 || performance.now() < until); i++) {
    await sequence.clear()
    setWorkers({ backend: backend as WasmBackend }, 1 + (i % 3)) // that the next steps run on
    const controller = new AbortController()
    const run = { sequence, tokens: prompt.slice(0, 40), phase: 'prompt', output: 'none' } as const
    const step = backend.step([run], { signal: controller.signal }).catch(() => aborted++)
    await sleep(random() * 4)
    controller.abort()
    await step
    for (const which of [sequence, other]) expectSameBits(await decode(which), want, `after ${i + 1} aborts`)
  }
  expect(aborted).toBeGreaterThan(5)
  await opened.close()
})

test('an abort before the step begins does nothing at all', async () => {
  const opened = await openDemoOnWasm()
  const sequence = opened.backend.createSequence()
  const run = { sequence, tokens: [1, 2], phase: 'prompt', output: 'last' } as const
  const signal = AbortSignal.abort(new Error('never'))
  await expect(opened.backend.step([run], { signal })).rejects.toThrow('never')
  expect([sequence.length, opened.backend.stats().steps]).toEqual([0, 0])
  await opened.close()
})

test.each(['error', 'short', 'end', 'flip'] as const)(
  'a read that fails (%s) is told, and the next evaluation works',
  async kind => {
    const faults = new ReadFaults()
    const opened = await openDemoOnWasm({ expertMemory: smallCache, readFaults: faults.buffer })
    const { backend } = opened
    const sequence = backend.createSequence()
    await evaluate(backend, sequence, prompt.slice(0, 10))
    faults.set(kind, { file: 5 })
    const run = { sequence, tokens: prompt.slice(10, 100), phase: 'prompt', output: 'last' } as const
    await expect(backend.step([run])).rejects.toMatchObject({ code: 'EXPERT_READ', layer: 5 })
    expect(sequence.length).toBe(10)
    faults.set('none')
    const logits = await evaluate(backend, sequence, prompt.slice(10))
    expectSameSnapshot(await snapshot(backend, sequence, logits), await fresh(backend, prompt))
    await opened.close()
  },
)

test('each expert of a layer is read at most once per chunk, in turns where they do not fit', async () => {
  const opened = await openDemoOnWasm({ expertMemory: smallCache, prefetch: false })
  const { backend } = opened
  const sequence = backend.createSequence()
  const run = { sequence, tokens: prompt, phase: 'prompt', output: 'none' } as const
  const [{ routing }] = await backend.step([run], { routing: true })
  const perLayer = prompt.length * 4
  let distinct = 0
  for (let layer = 0; layer < backend.config.numLayers; layer++) {
    distinct += new Set((routing as Uint16Array).subarray(layer * perLayer, (layer + 1) * perLayer)).size
  }
  expect(backend.stats().expertMisses).toBe(distinct)
  await opened.close()
})

describe('a worker that dies', () => {
  test('loses the model, not the process, and it can be opened again', async () => {
    const opened = await openDemoOnWasm()
    const { backend } = opened
    const sequence = backend.createSequence()
    await evaluate(backend, sequence, prompt.slice(0, 5))
    const run = { sequence, tokens: prompt, phase: 'prompt', output: 'last' } as const
    const pending = backend.step([run])
    const { threads } = (backend as WasmBackend).runtime.pool as WorkerPool
    await threads[1].terminate()
    await expect(pending).rejects.toMatchObject({ code: 'DEVICE_LOST' })
    await expect(backend.step([run])).rejects.toMatchObject({ code: 'DEVICE_LOST' })
    expect(sequence.length).toBe(5)
    await opened.close()
    const again = await openDemoOnWasm()
    await fresh(again.backend, prompt.slice(0, 5))
    await again.close()
  })
})

test('closing stops a running step, twice is harmless, and later calls are refused', async () => {
  const opened = await openDemoOnWasm()
  const { backend } = opened
  const sequence = backend.createSequence()
  const run = { sequence, tokens: prompt, phase: 'prompt', output: 'last' } as const
  const pending = backend.step([run]).catch(error => error)
  await Promise.all([backend.close(), backend.close()])
  const result = await pending
  if (result instanceof Error) expect(result).toMatchObject({ code: 'CLOSED' })
  await expect(backend.step([run])).rejects.toMatchObject({ code: 'CLOSED' })
  expect(() => backend.createSequence()).toThrow(expect.objectContaining({ code: 'CLOSED' }))
  sequence.release()
  await opened.close()
})

test('options that cannot work are refused', async () => {
  await expect(openDemoOnWasm({ expertMemory: 100_000 })).rejects.toMatchObject({ code: 'BAD_OPTION' })
  const gone = AbortSignal.abort(new Error('changed my mind'))
  await expect(openDemoOnWasm({ signal: gone })).rejects.toThrow('changed my mind')
})

test('opening and closing again and again leaves no file and no thread behind', async () => {
  const cycle = async () => {
    const opened = await openDemoOnWasm()
    await fresh(opened.backend, prompt.slice(0, 3))
    await opened.close()
  }
  const count = () => (process.platform === 'linux' ? readdirSync('/proc/self/task').length : 0)
  const files = () => (process.platform === 'linux' ? readdirSync('/proc/self/fd').length : 0)
  for (let i = 0; i < 2; i++) await cycle()
  const [threads, open] = [count(), files()]
  for (let i = 0; i < 5; i++) await cycle()
  expect(count()).toBeLessThanOrEqual(threads)
  expect(files()).toBeLessThanOrEqual(open)
})

test('the event loop stays free while generating', async () => {
  const opened = await openDemoOnWasm()
  const { backend } = opened
  const sequence = backend.createSequence()
  await evaluate(backend, sequence, prompt)
  let turns = 0
  let isOver = false
  const turn = () => {
    turns++
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  const steps = 60
  let token = 1
  for (let i = 0; i < steps; i++) {
    const [{ argmax }] = await backend.step([{ sequence, tokens: [token], phase: 'decode', output: 'last' }])
    token = argmax as number
  }
  isOver = true
  // Steps that held it would let it turn once or twice each. Milliseconds would measure the rest of the machine, too.
  expect(turns).toBeGreaterThan(20 * steps)
  await opened.close()
})
