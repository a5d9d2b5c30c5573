// The head for drafts against the reference values, on any backend.
import { describe, expect, test } from 'vitest'
import type { Backend, SequenceState } from '#moeflux/backends/backend.js'
import { expectClose } from '../ops/bands.js'
import type { GoldenRow } from './draftBackends.js'
import { drafting } from './drafting.js'
import { Goldens } from './goldens.js'

const goldens = new Goldens('mtp')

export function describeGoldens(rows: readonly GoldenRow[]): void {
  describe.each(rows)('$name against the reference values', againstGoldens)
}

function againstGoldens(row: GoldenRow): void {
  const on = drafting(row)

  test('guesses 1 to 3 of chains, keys and values of a prompt, greedy text in rounds of three guesses', async () => {
    const { backend, draft } = on
    for (const j of row.prompts) {
      const [from, end] = row.rows
      const rows = goldens.ints(`p${j}.rows`).subarray(from, end)
      const want = goldens.ints(`p${j}.draft_ids`).subarray(3 * from)
      const all = [...goldens.ints(`p${j}.input_ids`)]
      const ids = row.text > 0 ? all : all.slice(0, rows[rows.length - 1] + 2)
      const sequence = backend.createSequence()
      for (const [i, r] of rows.entries()) {
        const tokens = ids.slice(sequence.length, r + 1)
        await backend.step([{ sequence, tokens, phase: 'prompt', output: 'none' }])
        const logits: Float32Array[] = []
        const choose = (values: Float32Array, index: number) => {
          logits.push(values.slice())
          return want[3 * i + index]
        }
        await backend.draft!([{ sequence, token: ids[r + 1], count: 3, choose }])
        if (row.sameTokens) expect(await draft(sequence, ids[r + 1])).toEqual([...want.subarray(3 * i, 3 * i + 3)])
        if (j > 0) continue
        for (const [index, got] of logits.entries()) {
          const at = (from + i) * got.length
          const wanted = goldens.floats(`p0.draft${index + 1}_logits`).subarray(at, at + got.length)
          expectClose(got, wanted, row.band, `guess ${index} at row ${r}`)
        }
      }
      const last = { sequence, tokens: ids.slice(sequence.length), phase: 'prompt', output: 'argmax' } as const
      const [{ argmax }] = await backend.step([last])
      for (const [part, name] of [
        ['keys', 'k_cache'],
        ['values', 'v_cache'],
      ] as const) {
        const got = await sequence.exportRows(backend.config.numLayers, part, 1, ids.length - 1)
        expectClose(got, byRow(goldens.floats(`p${j}.${name}`), backend).subarray(0, got.length), row.band, part)
      }
      await expectRounds(sequence, j, argmax as number)
      sequence.release()
    }
  })

  /** Greedy text in rounds of three guesses is the same as one by one. */
  const expectRounds = async (sequence: SequenceState, j: number, first: number) => {
    const { draft, check } = on
    const greedy = [...goldens.ints(`p${j}.greedy`)].slice(0, row.text)
    const wantGuesses = goldens.ints(`p${j}.round_drafts`)
    const wantKept = goldens.ints(`p${j}.round_accepted`)
    const text = [first]
    for (let round = 0; text.length < greedy.length; round++) {
      const guesses = await draft(sequence, text.at(-1)!)
      const { kept, next } = await check(sequence, text.at(-1)!, guesses)
      text.push(...guesses.slice(0, kept - 1), next)
      if (!row.sameTokens || text.length > greedy.length) continue
      expect(guesses).toEqual([...wantGuesses.subarray(3 * round, 3 * round + 3)])
      expect(kept - 1).toBe(wantKept[round])
    }
    if (row.sameTokens) expect(text.slice(0, greedy.length)).toEqual(greedy)
  }
}

/** [kv heads, rows, headDim] -> [rows, kv heads, headDim] */
function byRow(values: Float32Array, { config }: Backend): Float32Array {
  const { numKvHeads, headDim } = config
  const rows = values.length / numKvHeads / headDim
  return values.map((_, i) => {
    const [row, head, channel] = [
      Math.floor(i / headDim / numKvHeads),
      Math.floor(i / headDim) % numKvHeads,
      i % headDim,
    ]
    return values[(head * rows + row) * headDim + channel]
  })
}
