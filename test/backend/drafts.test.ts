// The head for drafts and steps that check guesses, on reference and wasm: against the reference values, against the same tokens
// evaluated one by one. For webgpu in webgpuDrafts.test.ts; what goes wrong in the middle is in draftFaults.test.ts.
import { describe, expect, test } from 'vitest'
import { openWasmBackend } from '#moeflux/compute/wasm/wasmBackend.js'
import { expectSameBits } from '../support/bands.js'
import { goldenRows, openDraftBackend, stateRows } from '../support/draftBackends.js'
import { describeGoldens } from '../support/draftGoldens.js'
import { describeStates } from '../support/draftStates.js'
import { fresh } from '../support/wasmModels.js'

describeGoldens(goldenRows)
describeStates(stateRows)

test('without being asked for, the head is not loaded and changes nothing', async () => {
  const [, row] = goldenRows
  const [plain, drafting] = [await openDraftBackend(row, { drafts: false }), await openDraftBackend(row)]
  expect(plain.backend.draft).toBeUndefined()
  expect(plain.backend.config.draftHead).toBeNull()
  const [a, b] = [await fresh(plain.backend, [5, 6, 7]), await fresh(drafting.backend, [5, 6, 7])]
  expectSameBits(a.logits, b.logits)

  // Nor does it where it is not kept up to date for a while: then it guesses by what it has seen since.
  const [one, other] = [plain.backend.createSequence(), drafting.backend.createSequence()]
  const guesses = async () => (await drafting.backend.draft!([{ sequence: other, token: 8, count: 2 }]))[0].guesses
  for (const [tokens, head, known] of [
    [[5, 6, 7], true, 2],
    [[8], false, 0],
    [[9], true, 2],
  ] as const) {
    const run = { tokens, phase: 'prompt', output: 'last' } as const
    const [want] = await plain.backend.step([{ ...run, sequence: one }])
    const [got] = await drafting.backend.step([{ ...run, sequence: other }], { head })
    expectSameBits(got.logits!, want.logits!)
    expect(await guesses()).toHaveLength(known)
  }
  await plain.close()
  await drafting.close()
})

describe('guesses from a part of the vocabulary', () => {
  const COMMON = 300
  const PROMPT = [5, 290, 301, 4000, 17, 300, 8191, 299, 64, 2048]

  test.each([1, 2])('are the best of it, with %i threads, alone and in company', async threads => {
    const row = { ...goldenRows[1], options: { precision: 'exact', threads } } as const
    const open: typeof row.open = (packed, options) => openWasmBackend(packed, options, { commonTokens: COMMON })
    const [whole, part] = [await openDraftBackend(row), await openDraftBackend({ ...row, open })]
    const known = new Set([...PROMPT, ...Array.from({ length: COMMON }, (_, token) => token)])
    for (const count of [1, 3]) {
      const sequences = [whole, part].map(({ backend }) =>
        Array.from({ length: count }, () => backend.createSequence()),
      )
      for (const [side, { backend }] of [whole, part].entries()) {
        for (const [i, sequence] of sequences[side].entries()) {
          const tokens = [...PROMPT.slice(i), ...PROMPT.slice(0, i)]
          await backend.step([{ sequence, tokens, phase: 'prompt', output: 'none' }])
        }
      }
      const best = sequences[0].map(() => [] as number[])
      const logits = [0, 1].map(() => sequences[0].map(() => [] as Float32Array[]))
      const asked = (side: number) =>
        sequences[side].map((sequence, i) => ({
          ...{ sequence, token: 7 + i, count: 3 },
          choose(values: Float32Array, index: number) {
            logits[side][i].push(values.slice())
            if (side === 0) {
              const allowed = values.map((value, token) => (known.has(token) ? value : -Infinity))
              best[i].push(allowed.indexOf(Math.max(...allowed)))
            }
            return best[i][index]
          },
        }))
      await whole.backend.draft!(asked(0))
      await part.backend.draft!(asked(1))
      for (const [i, rows] of logits[1].entries()) {
        expect(rows).toHaveLength(3)
        for (const [index, got] of rows.entries()) {
          const want = logits[0][i][index].map((value, token) => (known.has(token) ? value : -Infinity))
          expectSameBits(got, want)
        }
      }
      const plain = sequences[1].map((sequence, i) => ({ sequence, token: 7 + i, count: 3 }))
      expect((await part.backend.draft!(plain)).map(({ guesses }) => guesses)).toEqual(best)
    }
    await whole.close()
    await part.close()
  })

  test('leave logits of steps whole, and what they have seen is theirs from then on', async () => {
    const row = goldenRows[1]
    const open: typeof row.open = (packed, options) => openWasmBackend(packed, options, { commonTokens: 1 })
    const [whole, part] = [await openDraftBackend(row), await openDraftBackend({ ...row, open })]
    const sequence = part.backend.createSequence()
    await part.backend.step([{ sequence, tokens: PROMPT.slice(0, 3), phase: 'prompt', output: 'none' }])
    const [{ guesses }] = await part.backend.draft!([{ sequence, token: 4000, count: 3 }])
    expect(guesses.filter(guess => ![0, ...PROMPT.slice(0, 3)].includes(guess))).toEqual([])
    const [a, b] = [await fresh(whole.backend, PROMPT), await fresh(part.backend, PROMPT)]
    expectSameBits(a.logits, b.logits)
    await whole.close()
    await part.close()
  })
})
