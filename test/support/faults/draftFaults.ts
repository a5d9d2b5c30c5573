// What goes wrong in the middle of a draft round, by position: expert reads that fail or are given up, in the head or in a row of the
// step that checks. Nothing has changed then, and the same round gives what it gives undisturbed.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Backend, HeldState, SequenceState } from '#moeflux/backends/backend.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { expectClose, expectSameBits, KERNEL } from '../ops/bands.js'
import type { BadDisk } from './badDisk.js'
import { type FaultModel, type FaultRow, faultModel, faultRows } from './faultBackends.js'
import { faultShape } from './faultShape.js'

export const timeout = 120_000
const forced = [12, 55, 31]
const KEPT = 3

/** Guesses of the head, and the rows of a step that checks some; of four tokens three stay. */
export async function round(backend: Backend, sequence: SequenceState, signal?: AbortSignal): Promise<Float32Array> {
  const guessed: Float32Array[] = []
  const choose = (logits: Float32Array, index: number) => {
    guessed.push(logits.slice())
    return forced[index]
  }
  await backend.draft!([{ sequence, token: 33, count: 3, choose }], { signal })
  const keep = () => KEPT
  const run = { sequence, tokens: [33, ...forced], phase: 'decode', output: 'all', keep } as const
  const [{ logits }] = await backend.step([run], { signal })
  return Float32Array.from([...guessed, logits!].flatMap(values => [...values]))
}

export async function begin(backend: Backend): Promise<SequenceState> {
  const sequence = backend.createSequence()
  await backend.step([{ sequence, tokens: [3, 17, 40], phase: 'prompt', output: 'none' }])
  await backend.step([{ sequence, tokens: [9], phase: 'decode', output: 'none' }])
  return sequence
}

export const rowOf = (name: string) => faultRows.find(row => row.name === name) as FaultRow

/** A small model with a head, for the tests of a file. */
export function modelWithHead(): { readonly packed: PackedModel } {
  let model: FaultModel
  beforeAll(async () => {
    model = await faultModel({ ...faultShape, head: true })
  })
  afterAll(() => model.close())
  return {
    get packed() {
      return model.packed
    },
  }
}

/** `names`: of faultRows. */
export function describeDraftFaults(names: readonly string[]): void {
  const model = modelWithHead()
  describe.each(names)('reads in a draft round, %s', name => withFaults(rowOf(name), model))
}

function withFaults(row: FaultRow, model: { readonly packed: PackedModel }): void {
  const stride = row.isGpu ? 7 : 1 // of positions: an emulated GPU is slow
  let backend: Backend
  let disk: BadDisk
  let before: HeldState
  let want: Float32Array
  beforeAll(async () => {
    ;({ backend, disk } = await row.open(model.packed, 8, { drafts: true }))
    const sequence = await begin(backend)
    before = await sequence.hold()
    want = await round(backend, sequence)
    sequence.release()
  }, timeout)
  afterAll(async () => {
    disk?.set('none')
    await backend?.close()
  })

  const again = async (sequence: SequenceState) => {
    expect(sequence.length).toBe(before.length)
    const got = await round(backend, sequence)
    expectClose(got, want, row.band ?? KERNEL)
    if (row.band === undefined) expectSameBits(got, want)
    expect(sequence.length).toBe(before.length + KEPT)
    sequence.release()
  }
  const restored = async () => {
    backend.forgetExperts()
    const sequence = backend.createSequence()
    await sequence.restore(before)
    return sequence
  }

  test('a read that fails at any position of a round', { timeout }, async () => {
    let met = 0
    for (let position = 0; ; position += stride) {
      const sequence = await restored()
      disk.pick('error', position)
      const outcome = await round(backend, sequence).catch((error: Error) => error)
      const isMet = disk.isMet
      disk.set('none')
      if (!isMet) break
      met++
      if (outcome instanceof Error) expect(outcome).toMatchObject({ code: 'EXPERT_READ' })
      else await sequence.restore(before) // nobody waited for it
      await again(sequence)
    }
    expect(met).toBeGreaterThan(2)
  })

  test('a round that is given up while it waits for a read', { timeout }, async () => {
    let met = 0
    for (let position = 0; ; position += stride) {
      const sequence = await restored()
      const giveUp = new AbortController()
      disk.pickAndHold(position)
      const outcome = round(backend, sequence, giveUp.signal).catch((error: Error) => error)
      const isMet = await Promise.race([
        outcome.then(() => disk.isMet),
        expect
          .poll(() => disk.isWaiting)
          .toBe(true)
          .then(() => true),
      ])
      giveUp.abort(new Error('enough'))
      disk.letGo()
      const ended = await outcome
      disk.set('none')
      if (!isMet) break
      met++
      if (ended instanceof Error) expect(ended.message).toBe('enough')
      else await sequence.restore(before)
      await again(sequence)
    }
    expect(met).toBeGreaterThan(2)
  })
}
