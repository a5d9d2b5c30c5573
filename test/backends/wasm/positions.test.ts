// Aborts and failed reads at every place where workers of the wasm backend meet or wait: by counting places, not by timing.
// After each, the same sequence and another one must compute what a fresh one does, to the bit.
import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { SimdLevel } from '#moeflux/backends/wasm/kernels.js'
import { packTwoLayers } from '../../support/models/twoLayerModel.js'
import { expectSameBits } from '../../support/ops/bands.js'
import { openGated } from '../../support/wasm/gatedWasm.js'
import { type GatedWasm, othersWait, reachedOr, StepPositions } from '../../support/wasm/stepPositions.js'

let folder: string
beforeAll(async () => {
  folder = await packTwoLayers()
})
afterAll(() => rmSync(dirname(folder), { recursive: true, force: true }))

// Other kernels have the same places: fewer of them are looked at.
const builds: [threads: number, simd: SimdLevel, stride: number][] = [
  [1, 'relaxed', 1],
  [2, 'relaxed', 1],
  [3, 'relaxed', 3],
  [1, 'baseline', 9],
  [2, 'baseline', 11],
  [3, 'baseline', 13],
]

describe.each(builds)('%i threads, %s', (threads, simd, stride) => {
  let opened: Awaited<ReturnType<typeof openGated>>
  beforeAll(async () => {
    opened = await openGated(folder, threads, { simd })
  })
  afterAll(() => opened.close())

  test.each(Array.from({ length: threads }, (_, worker) => worker))(
    'worker %i, an abort at every place',
    async worker => {
      const { places, aborted } = await (await StepPositions.on(opened, stride)).abortEverywhere(worker)
      expect(places).toBeGreaterThan(50)
      expect(aborted * stride).toBeGreaterThan(places / 2)
    },
  )

  test('an abort, and a disk that fails, while the leader waits for a read', async () => {
    opened.faults.set('none', { delayMs: 2 }) // so that there is a wait for every wave
    const positions = await StepPositions.on(opened, stride)
    expect(await positions.abortWaits()).toBeGreaterThan(3)
    opened.faults.set('none', { delayMs: 2 })
    const { places } = await positions.failReads('wait')
    expect(places).toBeGreaterThan(0)
    opened.faults.set('none')
  })

  test('a disk that fails from every place on', async () => {
    const { places, failed } = await (await StepPositions.on(opened, 2 * stride)).failReads('meet')
    expect(2 * failed * stride).toBeGreaterThan(places / 2)
  })
})

test('a worker that comes late to a step of many runs', async () => {
  const opened: GatedWasm = await openGated(folder, 2, {})
  const { backend, gate } = opened
  const sequences = Array.from({ length: 100 }, () => backend.createSequence())
  const runs = sequences.map((sequence, i) => ({ sequence, tokens: [i], phase: 'decode', output: 'last' }) as const)
  const want: Float32Array[] = []
  for (const run of runs) {
    want.push((await backend.step([run]))[0].logits as Float32Array)
    await run.sequence.clear()
  }
  for (const place of [1, 2, 3]) {
    gate.arm(1, place)
    const running = backend.step(runs)
    expect(await reachedOr(opened, running)).toBe(true)
    await othersWait(opened, running)
    gate.open()
    for (const [i, { logits }] of (await running).entries()) expectSameBits(logits as Float32Array, want[i], `run ${i}`)
    for (const sequence of sequences) await sequence.clear()
  }
  await opened.close()
})
