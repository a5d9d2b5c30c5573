// The head for drafts and steps that check guesses, on reference and wasm: against the reference values, against the same tokens
// evaluated one by one. For webgpu in webgpuDrafts.test.ts; what goes wrong in the middle is in draftFaults.test.ts.
import { expect, test } from 'vitest'
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
