// Expert reads that fail, come up short, take long or are aborted, on every backend, each at every position: every expert a
// token was routed to is there, or the step fails with ExpertReadError and nothing has changed. What follows is compared
// with an evaluation that nothing disturbed, to the bit, in the same sequence and in another one.
import { truncateSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend, HeldState, SequenceState } from '#moeflux/backends/backend.js'
import type { BadDisk } from '../support/faults/badDisk.js'
import { type FaultModel, faultModel, faultRows } from '../support/faults/faultBackends.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'

const timeout = 120_000
const slots = 4 // of 30: what a call has read is gone when the next one begins
let model: FaultModel
beforeAll(async () => {
  model = await faultModel()
})
afterAll(() => model.close())

interface Call {
  readonly phase: 'prompt' | 'decode'
  readonly tokens: readonly number[]
}
const history: readonly Call[] = [
  { phase: 'prompt', tokens: [3, 17, 40] },
  { phase: 'decode', tokens: [9] },
]
const length = 4
const calls: readonly Call[] = [
  { phase: 'prompt', tokens: [5, 28] },
  { phase: 'decode', tokens: [33] },
]

async function evaluate(backend: Backend, sequence: SequenceState, call: Call, signal?: AbortSignal) {
  const [{ logits }] = await backend.step([{ sequence, ...call, output: 'last' }], { signal })
  return logits as Float32Array
}

async function replay(backend: Backend): Promise<SequenceState> {
  const sequence = backend.createSequence()
  for (const call of history) await evaluate(backend, sequence, call)
  return sequence
}

describe.each(faultRows.map(row => [row.name, row] as const))('%s', (_, row) => {
  let backend: Backend
  let disk: BadDisk
  let before: HeldState // after the history
  beforeAll(async () => {
    ;({ backend, disk } = await row.open(model.packed, slots))
    const sequence = await replay(backend)
    before = await sequence.hold()
    sequence.release()
  }, timeout)
  afterAll(async () => {
    disk?.set('none')
    await backend?.close()
  })

  const begin = async () => {
    const sequence = backend.createSequence()
    await sequence.restore(before)
    if (row.keepsMuch) backend.forgetExperts()
    return sequence
  }

  const expectSame = (got: Float32Array, want: Float32Array, what?: string) =>
    row.band === undefined ? expectSameBits(got, want, what) : expectClose(got, want, row.band, what)

  const expectReadError = (error: unknown) => {
    expect(error).toMatchObject({ code: 'EXPERT_READ' })
    const { layer, expert, file, offset } = error as { layer: number; expert: number; file: string; offset: number }
    expect(file).toContain(model.files[layer])
    expect(offset).toBe(expert * model.packed.experts.layout.expertSize)
  }

  describe.each(calls.map(call => [call.phase, call] as const))('%s', (_, call) => {
    let want: Float32Array
    beforeAll(async () => {
      disk.set('none')
      const sequence = await begin()
      want = await evaluate(backend, sequence, call)
      sequence.release()
    }, timeout)

    const checkAfter = async (sequence: SequenceState, inAnother = true) => {
      expect(sequence.length).toBe(length)
      expectSame(await evaluate(backend, sequence, call), want, 'same sequence')
      if (!inAnother) return
      const other = await replay(backend)
      expectSame(await evaluate(backend, other, call), want, 'another sequence')
      other.release()
    }

    /**
     * For every read that the call begins, or every so many, until it begins no more. `work` tells whether its read has
     * begun.
     */
    const forEveryRead = async (step: number, work: (n: number, sequence: SequenceState) => Promise<boolean>) => {
      for (let n = 0, met = true; met; n += step * row.stride) {
        const sequence = await begin()
        met = await work(n, sequence)
        disk.set('none')
        sequence.release()
      }
    }

    /** Begins the call, and waits until the picked read hangs or the call is over without it. */
    const untilItHangs = async (sequence: SequenceState, signal?: AbortSignal) => {
      let isOver = false
      const running = evaluate(backend, sequence, call, signal)
        .catch((error: Error) => error)
        .finally(() => {
          isOver = true
        })
      while (!disk.isWaiting && !isOver) await sleep(1)
      return { running, hangs: disk.isWaiting }
    }

    test.each([
      ['error', 1],
      ['short', 3],
      ['end', 4],
    ] as const)('a read fails (%s), whichever it is', { timeout }, async (kind, step) => {
      let failures = 0
      await forEveryRead(step, async (n, sequence) => {
        disk.pick(kind, n)
        const outcome = await evaluate(backend, sequence, call).catch((error: Error) => error)
        const met = disk.isMet
        disk.set('none')
        if (outcome instanceof Error) {
          expectReadError(outcome)
          failures++
          await checkAfter(sequence, n % 4 === 0)
        } else expectSame(outcome, want, `after a fault of read ${n}, which nobody had to have`)
        return met
      })
      expect(failures).toBeGreaterThan(0)
    })

    test('aborted while a read hangs, whichever it is', { timeout }, async () => {
      let aborts = 0
      await forEveryRead(1, async (n, sequence) => {
        const controller = new AbortController()
        const reason = new Error('enough')
        disk.pickAndHold(n)
        const { running, hangs } = await untilItHangs(sequence, controller.signal)
        controller.abort(reason)
        const outcome = await running // the read hangs on
        disk.letGo()
        if (outcome === reason) {
          aborts++
          await checkAfter(sequence, n % 4 === 0)
        } else expectSame(outcome as Float32Array, want, `beside read ${n}`)
        return hangs
      })
      expect(aborts).toBeGreaterThan(0)
    })

    test('a read that takes long, whichever it is', { timeout }, async () => {
      await forEveryRead(5, async (n, sequence) => {
        disk.pickAndHold(n)
        const { running, hangs } = await untilItHangs(sequence)
        await sleep(10) // everything else comes to a stop
        disk.letGo()
        expectSame((await running) as Float32Array, want, `read ${n} was slow`)
        return hangs
      })
    })

    test('a read that began before the disk was well, and fails after: it is read again', { timeout }, async () => {
      await forEveryRead(3, async (n, sequence) => {
        const controller = new AbortController()
        disk.pickAndHold(n, 'error', 3) // all its tries
        const { running, hangs } = await untilItHangs(sequence, controller.signal)
        controller.abort(new Error('enough'))
        if (!((await running) instanceof Error)) return hangs
        const again = evaluate(backend, sequence, call)
        await sleep(5) // it waits for the same expert
        disk.letGo()
        expectSame(await again, want, `read ${n} failed late`)
        return hangs
      })
    })

    test('files that are cut short and whole again, while open', { timeout }, async () => {
      let failures = 0
      for (const [layer, file] of model.files.entries()) {
        const sequence = await begin()
        truncateSync(file, Math.floor(model.contents[layer].length / 4))
        const outcome = await evaluate(backend, sequence, call).catch((error: Error) => error)
        writeFileSync(file, model.contents[layer])
        if (outcome instanceof Error) {
          expectReadError(outcome)
          failures++
          await checkAfter(sequence)
        } else expectSame(outcome, want)
        sequence.release()
      }
      expect(failures).toBeGreaterThan(0)
    })

    test('a disk that is gone for a while', { timeout }, async () => {
      const sequence = await begin()
      disk.set('error')
      for (let i = 0; i < 3; i++) {
        expectReadError(await evaluate(backend, sequence, call).catch((error: Error) => error))
        expect(sequence.length).toBe(length)
      }
      disk.set('none')
      await checkAfter(sequence)
      sequence.release()
    })
  })

  // The last one: it closes the backend.
  test('closing while a read hangs waits for the read and returns', { timeout }, async () => {
    const sequence = await begin()
    const call: Call = { phase: 'prompt', tokens: [5, 28, 51, 2, 7, 8, 11] }
    const want = await evaluate(backend, sequence, call)
    await sequence.restore(before)
    const running = evaluate(backend, sequence, call).catch((error: Error) => error)
    disk.pickAndHold(1)
    while (!disk.isWaiting) await sleep(1)
    let isClosed = false
    const closing = backend.close().then(() => {
      isClosed = true
    })
    await sleep(20)
    expect(isClosed).toBe(false)
    disk.letGo()
    await closing
    const outcome = await running
    if (outcome instanceof Error) expect(outcome).toMatchObject({ code: 'CLOSED' })
    else expectSame(outcome, want)
  })
})
