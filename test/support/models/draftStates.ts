// What becomes of a sequence's state while its tokens are guessed and checked, on any backend: compared with the same tokens evaluated
// one by one.
import { describe, expect, test } from 'vitest'
import { expectSameState, fresh, type Snapshot, snapshot } from '../wasm/wasmModels.js'
import type { StateRow } from './draftBackends.js'
import { drafting } from './drafting.js'

export function describeStates(rows: readonly StateRow[]): void {
  describe.each(rows)('states, $name', withStates)
}

function withStates(row: StateRow): void {
  const on = drafting(row)
  const sameState = (got: Snapshot, want: Snapshot) => expectSameState(got, want, row.rounding)
  const ids = [17, 3, 40, 22, 58, 9, 31, 44]

  test('rejected guesses leave no trace, in one sequence or several', async () => {
    const { backend, prompt, draft } = on
    const { kept } = row
    const sequences = await Promise.all(kept.map(() => prompt(ids)))
    const tokens = [5, 6, 7, 8]
    await backend.step(
      sequences.map((sequence, i) => ({ sequence, tokens, phase: 'decode', output: 'all', keep: () => kept[i] })),
    )
    for (const [i, sequence] of sequences.entries()) {
      const all = [...ids, ...tokens.slice(0, kept[i])]
      expect(sequence.length).toBe(all.length)
      const guesses = await draft(sequence, 9)
      const one = { sequence, tokens: [9], phase: 'decode', output: 'last' } as const
      const [{ logits }] = await backend.step([one])
      const plain = await prompt(ids)
      for (const token of tokens.slice(0, kept[i])) {
        await backend.step([{ sequence: plain, tokens: [token], phase: 'decode', output: 'none' }])
      }
      expect(await draft(plain, 9), 'the head knows the same').toEqual(guesses)
      const [alone] = await backend.step([{ ...one, sequence: plain }])
      const want = await snapshot(backend, plain, alone.logits!)
      sameState(await snapshot(backend, sequence, logits!), want)
      plain.release()
      sequence.release()
    }
  })

  test('held states bring the head along; an imported one starts it anew', async () => {
    const { backend, prompt, draft, check } = on
    const sequence = await prompt(ids)
    const held = await sequence.hold()
    const guesses = await draft(sequence, 11)
    expect(guesses).toHaveLength(3)
    await check(sequence, 11, [1, 2, 3])
    await sequence.restore(held)
    expect(await draft(sequence, 11)).toEqual(guesses)
    held.release()

    const layers = (await snapshot(backend, sequence, new Float32Array(0))).layers
    await sequence.importLayers(ids.length, layers)
    expect(await draft(sequence, 11), 'nothing is known of the last token').toEqual([])
    await backend.step([{ sequence, tokens: [11, 12, 13], phase: 'prompt', output: 'none' }])
    expect(await draft(sequence, 14)).toHaveLength(3)
    await sequence.clear()
    expect(await draft(sequence, 14)).toEqual([])
    sequence.release()
  })

  test('an aborted step, an aborted draft, and drafting itself change nothing', async () => {
    const { backend, prompt, draft } = on
    const whole = await fresh(backend, ids)
    const sequence = await prompt(ids.slice(0, -1))
    const aborted = { signal: AbortSignal.abort(new Error('enough')) }
    const keep = () => 4
    const guessed = { sequence, tokens: [1, 2, 3, 4], phase: 'decode', output: 'all', keep } as const
    await expect(backend.step([guessed], aborted)).rejects.toThrow('enough')
    await expect(backend.draft!([{ sequence, token: 1, count: 3 }], aborted)).rejects.toThrow('enough')
    await draft(sequence, 3)
    const last = { sequence, tokens: ids.slice(-1), phase: 'prompt', output: 'last' } as const
    const [{ logits }] = await backend.step([last])
    sameState(await snapshot(backend, sequence, logits!), whole)
    sequence.release()
  })

  test('choose sees the logits, and ends the chain', async () => {
    const { backend, prompt } = on
    const sequence = await prompt([1, 2, 3])
    const seen: number[] = []
    const choose = (logits: Float32Array, index: number) => {
      expect(logits.length).toBe(backend.config.vocabSize)
      seen.push(index)
      return index === 1 ? null : 47
    }
    const [{ guesses }] = await backend.draft!([{ sequence, token: 4, count: 3, choose }])
    expect(guesses).toEqual([47])
    expect(seen).toEqual([0, 1])
    sequence.release()
  })
}
