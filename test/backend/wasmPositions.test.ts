// Aborts, failed reads and deaths at every place where workers of the wasm backend meet or wait: by counting places, not by
// timing. After each, the same sequence and another one must compute what a fresh one does, to the bit.
import { rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { SequenceState } from '#moeflux/compute/backend.js'
import type { SimdLevel } from '#moeflux/compute/wasm/kernels.js'
import { expectSameBits } from '../support/bands.js'
import { type GatedWasm, openGated, othersWait, reachedOr, readsOver } from '../support/gatedWasm.js'
import { packTwoLayers } from '../support/twoLayerModel.js'

const prompt = [3, 141, 59, 26, 5] // more rows than workers prepare for themselves
const token = 35

let folder: string
beforeAll(async () => {
  folder = await packTwoLayers()
})
afterAll(() => rmSync(dirname(folder), { recursive: true, force: true }))

interface Outcome {
  readonly logits: Float32Array[]
  readonly error: (Error & { code?: string }) | null
}

/** A prompt and one token after it; what went wrong, where something did. */
async function evaluate({ backend }: GatedWasm, sequence: SequenceState, signal?: AbortSignal): Promise<Outcome> {
  const logits: Float32Array[] = []
  try {
    for (const [tokens, phase] of [[prompt, 'prompt'] as const, [[token], 'decode'] as const]) {
      const [output] = await backend.step([{ sequence, tokens, phase, output: 'last' }], { signal })
      logits.push(output.logits as Float32Array)
    }
    return { logits, error: null }
  } catch (error) {
    return { logits, error: error as Error }
  }
}

/** Both sequences from the beginning; small steps on one worker, then on all: what was left behind would show. */
async function expectSound(opened: GatedWasm, threads: number, sequences: SequenceState[], want: Float32Array[]) {
  for (const [i, sequence] of sequences.entries()) {
    opened.setWorkers(i === 0 ? 1 : threads)
    await sequence.clear()
    const { logits, error } = await evaluate(opened, sequence)
    if (error) throw error
    logits.forEach((got, j) => {
      expectSameBits(got, want[j], `logits of step ${j}`)
    })
  }
  opened.setWorkers(threads)
}

const builds: [threads: number, simd: SimdLevel, stride: number][] = [
  [1, 'relaxed', 1],
  [2, 'relaxed', 1],
  [3, 'relaxed', 3],
  [1, 'baseline', 4],
  [2, 'baseline', 5],
  [3, 'baseline', 7],
]

describe.each(builds)('%i threads, %s', (threads, simd, stride) => {
  let opened: GatedWasm
  let sequences: SequenceState[]
  let want: Float32Array[]
  beforeAll(async () => {
    opened = await openGated(folder, threads, { simd })
    opened.setWorkers(threads)
    sequences = [opened.backend.createSequence(), opened.backend.createSequence()]
    want = (await evaluate(opened, sequences[0])).logits
  })
  afterAll(() => opened.close())

  /** A step of the other sequence on the leader alone. */
  async function decodeAlone(): Promise<void> {
    opened.setWorkers(1)
    await opened.backend.step([{ sequence: sequences[1], tokens: [token], phase: 'decode', output: 'last' }])
    opened.setWorkers(threads)
  }

  /** Stops a worker at its n-th passage of an evaluation of the first sequence, for every n; how many there were. */
  async function everyPassage(
    worker: number,
    place: 'meet' | 'wait',
    act: (running: Promise<Outcome>, controller: AbortController) => Promise<void>,
  ): Promise<number> {
    for (let n = 1; ; n += stride) {
      await sequences[0].clear()
      const controller = new AbortController()
      opened.gate.arm(worker, n, 'hold', place)
      const running = evaluate(opened, sequences[0], controller.signal)
      if (!(await reachedOr(opened, running))) {
        opened.gate.open()
        expect((await running).error).toBeNull()
        return n - 1
      }
      await act(running, controller)
      expect([0, prompt.length, prompt.length + 1]).toContain(sequences[0].length)
      await expectSound(opened, threads, sequences, want)
    }
  }

  test.each(Array.from({ length: threads }, (_, worker) => worker))(
    'worker %i, an abort at every place',
    async worker => {
      let aborted = 0
      const places = await everyPassage(worker, 'meet', async (running, controller) => {
        controller.abort(new Error('enough'))
        // From here on in single steps: it is always the last, and nobody may go on without it.
        let isOver = false
        running.then(() => {
          isOver = true
        })
        do {
          await othersWait(opened, threads, running)
          if (isOver && worker > 0) await decodeAlone()
          opened.gate.arm(worker, 1)
        } while (await reachedOr(opened, running))
        opened.gate.open()
        const { error } = await running
        if (error) expect(error.message).toBe('enough')
        if (error) aborted++
      })
      expect(places).toBeGreaterThan(50)
      expect(aborted * stride).toBeGreaterThan(places / 2)
    },
  )

  test('an abort, and a disk that fails, while the leader waits for a read', async () => {
    opened.faults.set('none', { delayMs: 2 }) // so that there is a wait for every wave
    const aborted = await everyPassage(0, 'wait', async (running, controller) => {
      controller.abort(new Error('enough'))
      opened.gate.open()
      expect((await running).error?.message).toBe('enough')
    })
    expect(aborted).toBeGreaterThan(3)
    await everyPassage(0, 'wait', async running => {
      opened.faults.set('error')
      opened.gate.open()
      const { error } = await running
      if (error) expect(error.code).toBe('EXPERT_READ')
      opened.faults.set('none', { delayMs: 2 })
      await readsOver(opened)
    })
    opened.faults.set('none')
  })

  test('a disk that fails from every place on', async () => {
    let failed = 0
    const places = await everyPassage(0, 'meet', async running => {
      opened.faults.set('end')
      opened.gate.open()
      const { error } = await running
      if (error) expect(error.code).toBe('EXPERT_READ')
      if (error) failed++
      opened.faults.set('none')
      await readsOver(opened)
    })
    expect(failed * stride).toBeGreaterThan(places / 2)
  })
})

test('a worker that comes late to a step of many runs', async () => {
  const opened = await openGated(folder, 2, {})
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
    await othersWait(opened, 2, running)
    gate.open()
    for (const [i, { logits }] of (await running).entries()) expectSameBits(logits as Float32Array, want[i], `run ${i}`)
    for (const sequence of sequences) await sequence.clear()
  }
  await opened.close()
})
