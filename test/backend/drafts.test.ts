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
  await plain.close()
  await drafting.close()
})
