// The head for drafts and steps that check guesses, on reference and wasm: against the reference values, against the same tokens
// evaluated one by one. For webgpu in drafts.gpu.test.ts; what goes wrong in the middle is in draftFaults.test.ts.
import { describe, expect, test } from 'vitest'
import { MOST_RARE_TOKENS } from '#moeflux/backends/draftVocabulary.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { goldenRows, openDraftBackend, stateRows } from '../support/models/draftBackends.js'
import { describeGoldens } from '../support/models/draftGoldens.js'
import { describeStates } from '../support/models/draftStates.js'
import { expectSameBits } from '../support/ops/bands.js'
import { fresh } from '../support/wasm/wasmModels.js'

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
  const TEXTS = [
    [5, 290, 301, 4000, 17, 300, 8191, 299, 64, 2048],
    [300, 7, 7000, 9, 11],
    [1, 2, 3, 4, 5, 6, ...Array.from({ length: 900 }, (_, i) => 1000 + 7 * i)],
  ]
  /** In company there is room for a third as many rare ones of each text: the last 682. */
  const isKnown = (text: number, token: number, texts = 1) =>
    token < COMMON || TEXTS[text].slice(texts > 1 ? -Math.floor(MOST_RARE_TOKENS / texts) : 0).includes(token)

  test.each([1, 2])('are the best of it, with %i threads, alone and in company', async threads => {
    const row = { ...goldenRows[1], options: { precision: 'exact', threads } } as const
    const open: typeof row.open = (packed, options) => openWasmBackend(packed, options, { commonTokens: COMMON })
    const [whole, part] = [await openDraftBackend(row), await openDraftBackend({ ...row, open })]
    const sequencesOf = ({ backend }: typeof whole) =>
      Promise.all(
        TEXTS.map(async tokens => {
          const sequence = backend.createSequence()
          await backend.step([{ sequence, tokens: tokens.slice(0, 10), phase: 'prompt', output: 'none' }])
          return sequence
        }),
      )
    const [wholes, parts] = [await sequencesOf(whole), await sequencesOf(part)]
    const best = TEXTS.map(() => [] as number[])
    const wanted = TEXTS.map(() => [] as Float32Array[])
    for (const [i, sequence] of wholes.entries()) {
      const choose = (values: Float32Array, index: number) => {
        wanted[i].push(values.map((value, token) => (isKnown(i, token) ? value : -Infinity)))
        best[i].push(wanted[i][index].indexOf(Math.max(...wanted[i][index])))
        return best[i][index]
      }
      await whole.backend.draft!([{ sequence, token: 7 + i, count: 3, choose }])
    }
    const seen = TEXTS.map(() => [] as Float32Array[])
    const plain = TEXTS.map((text, i) => ({ sequence: parts[i], token: 7 + i, count: 3, text }))
    const choosing = plain.map((request, i) => ({
      ...request,
      choose(values: Float32Array, index: number) {
        seen[i].push(values.slice())
        return best[i][index]
      },
    }))
    for (const request of choosing) await part.backend.draft!([request])
    await part.backend.draft!(choosing)
    for (const [i, rows] of seen.entries()) {
      expect(rows).toHaveLength(6)
      for (const [index, got] of rows.entries()) {
        const texts = index < 3 ? 1 : TEXTS.length
        const want = wanted[i][index % 3].map((value, token) => (isKnown(i, token, texts) ? value : -Infinity))
        expectSameBits(got, want)
      }
    }
    for (const [i, request] of plain.entries()) {
      expect((await part.backend.draft!([request]))[0].guesses).toEqual(best[i])
    }
    await whole.close()
    await part.close()
  })

  test('leave logits of steps whole', async () => {
    const row = goldenRows[1]
    const open: typeof row.open = (packed, options) => openWasmBackend(packed, options, { commonTokens: 1 })
    const [whole, part] = [await openDraftBackend(row), await openDraftBackend({ ...row, open })]
    const sequence = part.backend.createSequence()
    const [text] = TEXTS
    await part.backend.step([{ sequence, tokens: text, phase: 'prompt', output: 'none' }])
    for (const known of [[], [4000, 17]]) {
      const [{ guesses }] = await part.backend.draft!([{ sequence, token: 4000, count: 3, text: known }])
      expect(guesses).toHaveLength(3)
      expect(guesses.filter(guess => guess !== 0 && !known.includes(guess))).toEqual([])
    }
    const [a, b] = [await fresh(whole.backend, text), await fresh(part.backend, text)]
    expectSameBits(a.logits, b.logits)
    await whole.close()
    await part.close()
  })
})
