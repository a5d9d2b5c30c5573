// Threads of the wasm backend that die: at every place where they meet, while they wait, and while the model is closed. The
// step fails with a typed error, so does everything after it, what was committed stays as it was, and closing works.
// Every place takes minutes; the suite looks at some. MOEFLUX_EVERY_PLACE=1 looks at all.
import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { SequenceState } from '#moeflux/backends/backend.js'
import type { KernelModule } from '#moeflux/backends/wasm/kernels.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import type { ComputeThread, WasmHost } from '#moeflux/backends/wasm/platform.js'
import type { WorkerPool } from '#moeflux/backends/wasm/workers/workerPool.js'
import { startAsyncReaders } from '#moeflux/experts/readers/asyncReaders.js'
import { packTwoLayers } from '../../support/models/twoLayerModel.js'
import { openGated } from '../../support/wasm/gatedWasm.js'
import { evaluate, type GatedWasm, PROMPT, reachedOr, setWorkers, TOKEN } from '../../support/wasm/stepPositions.js'
import { expectSameSnapshot, fresh, type Snapshot, snapshot } from '../../support/wasm/wasmModels.js'

const isThorough = process.env.MOEFLUX_EVERY_PLACE === '1'

let folder: string
let healthy: GatedWasm
const states = new Map<string, Snapshot>() // by build and length
beforeAll(async () => {
  folder = await packTwoLayers()
  const { simd: best } = await nodeHost().loadKernels() // that of models that ask for none
  for (const simd of new Set(['baseline', best, 'relaxed'] as const)) {
    await healthy?.close()
    healthy = await openGated(folder, 2, { simd })
    const { backend } = healthy
    states.set(`${simd} ${PROMPT.length}`, await fresh(backend, PROMPT))
    states.set(`${simd} ${PROMPT.length + 1}`, await fresh(backend, [...PROMPT, TOKEN], [PROMPT.length, 1]))
  }
})
afterAll(async () => {
  await healthy.close()
  rmSync(dirname(folder), { recursive: true, force: true })
})

/** Opens in a few milliseconds: no threads for reading, kernels compiled once. */
const kernels = new Map<string, Promise<KernelModule>>()
const quickHost: WasmHost = {
  ...nodeHost(),
  loadKernels(wanted) {
    const known = kernels.get(String(wanted)) ?? nodeHost().loadKernels(wanted)
    kernels.set(String(wanted), known)
    return known
  },
  startReaders: request => startAsyncReaders({ ...request, shared: true }),
}

function threadsOf({ backend }: GatedWasm): ComputeThread[] {
  return (backend.runtime.pool as WorkerPool).threads
}

/** Everything fails in the same way, what was committed is there, and the other model does not notice. */
async function expectLost(opened: GatedWasm, sequence: SequenceState, running: Promise<unknown>): Promise<void> {
  const lost = { code: 'DEVICE_LOST', message: expect.stringContaining('open the model again') }
  await expect(running).rejects.toMatchObject(lost)
  expect(opened.backend.failure).toMatchObject(lost)
  const again = opened.backend.createSequence()
  await expect(evaluate(opened, again)).rejects.toBe(opened.backend.failure)
  await expect(opened.backend.probe(again, { tokens: [1] })).rejects.toBe(opened.backend.failure)
  const want = states.get(`${opened.backend.runtime.simd} ${sequence.length}`)
  expect(want !== undefined).toBe(sequence.length > 0)
  if (want) {
    expectSameSnapshot(await snapshot(opened.backend, sequence, want.logits), want)
  }
  await opened.close()
  expectSameSnapshot(await fresh(healthy.backend, PROMPT), states.get(`relaxed ${PROMPT.length}`) as Snapshot)
}

describe.each([
  [1, 'relaxed', 41],
  [2, 'relaxed', 23],
  [3, 'relaxed', 37],
  [2, 'baseline', 41],
] as const)('%i threads, %s', (threads, simd, stride) => {
  test.each(Array.from({ length: threads }, (_, worker) => worker))('worker %i fails in every place', async worker => {
    let deaths = 0
    for (let n = 1 + (isThorough ? 0 : worker); ; n += isThorough ? 1 : stride) {
      const opened = await openGated(folder, threads, { simd }, quickHost)
      setWorkers(opened, threads)
      const sequence = opened.backend.createSequence()
      opened.gate.arm(worker, n, 'throw')
      const running = evaluate(opened, sequence)
      running.catch(() => {})
      if (!(await reachedOr(opened, running))) {
        await opened.close()
        break
      }
      // It may fail when its last job is done: the next one must not wait for it.
      const next = running.then(() => evaluate(opened, opened.backend.createSequence()))
      await expectLost(opened, sequence, next)
      deaths++
    }
    expect(deaths).toBeGreaterThan(isThorough ? 80 : 1)
  })
})

test('a worker that is ended while it stands in a job, and all others wait for it', async () => {
  for (const worker of [0, 1, 2]) {
    const opened = await openGated(folder, 3, {}, quickHost)
    const sequence = opened.backend.createSequence()
    opened.gate.arm(worker, 20)
    const running = evaluate(opened, sequence)
    running.catch(() => {})
    expect(await reachedOr(opened, running)).toBe(true)
    await threadsOf(opened)[worker].terminate()
    await expectLost(opened, sequence, running)
  }
})

test('a worker that ends between two jobs', async () => {
  const opened = await openGated(folder, 2, {}, quickHost)
  const sequence = opened.backend.createSequence()
  await evaluate(opened, sequence)
  await threadsOf(opened)[1].terminate()
  await expectLost(opened, sequence, evaluate(opened, opened.backend.createSequence()))
})

describe('closing', () => {
  test('ends a job whose worker never comes', async () => {
    const opened = await openGated(folder, 2, {}, quickHost)
    opened.gate.arm(1, 10)
    const running = evaluate(opened, opened.backend.createSequence())
    const failure = expect(running).rejects.toMatchObject({ code: 'CLOSED' })
    expect(await reachedOr(opened, running)).toBe(true)
    await opened.close()
    await failure
    expect(opened.backend.failure).toBeNull()
  })

  test('ends when a worker dies meanwhile', async () => {
    const opened = await openGated(folder, 2, {}, quickHost)
    opened.gate.arm(1, 10)
    const running = evaluate(opened, opened.backend.createSequence())
    const failure = expect(running).rejects.toMatchObject({ code: 'DEVICE_LOST' })
    expect(await reachedOr(opened, running)).toBe(true)
    const closed = opened.close()
    await threadsOf(opened)[1].terminate()
    await closed
    await failure
  })
})

test('a thread that reads experts and dies takes the model with it as well', async () => {
  const opened = await openGated(folder, 2, {})
  const sequence = opened.backend.createSequence()
  await opened.backend.step([{ sequence, tokens: PROMPT, phase: 'prompt', output: 'last' }])
  opened.gate.arm(0, 3)
  const running = opened.backend.step([{ sequence, tokens: [TOKEN], phase: 'decode', output: 'last' }])
  running.catch(() => {})
  expect(await reachedOr(opened, running)).toBe(true)
  opened.backend.runtime.ring?.readerLost() // as the thread's end does
  opened.gate.open()
  await expectLost(
    opened,
    sequence,
    running.then(() => evaluate(opened, opened.backend.createSequence())),
  )
})
