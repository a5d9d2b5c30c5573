// Whether a model is opened with its head for drafts: what that takes is planned for, and where memory is short the head is what goes first.
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { BackendOptions } from '#moeflux/backends/backend.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import { type OpeningPlan, planOpening } from '#moeflux/backends/wasm/plan.js'
import type { WasmHost } from '#moeflux/backends/wasm/platform.js'
import { MemoryPlanError } from '#moeflux/base/memoryErrors.js'
import { EngineModel } from '#moeflux/engine/model.js'
import { openModelParts } from '#moeflux/engine/openEngine.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { recurrentBytes } from '#moeflux/model/sizes.js'
import { demoModel } from '../../support/models/models.js'

let packed: PackedModel
beforeAll(async () => {
  packed = await openPacked(await openNodeFolder(demoModel, { links: 'any' }))
})
afterAll(() => packed.close())

function hostWith(bytes: number): WasmHost {
  const memory = () => ({ bytes, ceiling: bytes, limit: bytes, limitedBy: 'cgroup' }) as const
  return { ...nodeHost(), threads: 2, processors: 2, readers: () => 2, memory }
}

function open(drafts: BackendOptions['drafts'], bytes: number, more: Partial<BackendOptions> = {}): OpeningPlan {
  return planOpening(packed, { precision: 'fast', expertsPerToken: 4, drafts, ...more }, {}, hostWith(bytes))
}

const hasHead = (plan: OpeningPlan) => plan.packed.config.draftHead !== null
const partOf = ({ budget }: OpeningPlan, part: string) => budget.way.parts.find(({ what }) => what === part)!.bytes

/** The least memory that a plan is made in, to a few kilobytes. */
function least(drafts: BackendOptions['drafts'], wanted: (plan: OpeningPlan) => boolean): number {
  let [low, high] = [1e6, 1e9]
  while (high - low > 4096) {
    const middle = (low + high) / 2
    try {
      if (wanted(open(drafts, middle))) high = middle
      else low = middle
    } catch (error) {
      if (!(error instanceof MemoryPlanError)) throw error
      low = middle
    }
  }
  return high
}

test('a state for each token of a step with guesses is planned for, and nothing where nobody guesses', () => {
  const [plain, drafting] = [open(false, 1e9), open(true, 1e9)]
  expect([hasHead(plain), hasHead(drafting)]).toEqual([false, true])
  expect([plain.noDrafts, drafting.noDrafts]).toEqual([null, null])
  const one = recurrentBytes(packed.config)
  expect(partOf(drafting, 'recurrent state') - partOf(plain, 'recurrent state')).toBe(3 * one)
  expect(partOf(open(true, 1e9, { guesses: 1 }), 'recurrent state') - partOf(plain, 'recurrent state')).toBe(one)
  const planned = { tokens: 64, sequences: 4, isContext: false }
  expect(partOf(open(true, 1e9, { planned }), 'recurrent state')).toBe((1 + 5 * 4) * one)
})

test('where it does not fit, the model is opened without, and says by how much', () => {
  const [withHead, atAll] = [least(true, hasHead), least(true, () => true)]
  expect(withHead).toBeGreaterThan(atAll + 1e6)
  const short = open(true, withHead - 20_000)
  expect(hasHead(short)).toBe(false)
  expect(short.noDrafts).toMatch(/^memory is short, and guessing ahead takes \d+ MB more$/)
  expect(short.budget.slots).toBe(open(false, withHead - 20_000).budget.slots)
  expect(() => open(true, atAll - 20_000)).toThrow(MemoryPlanError)
})

test('what may pay takes next to nothing from experts that do not all fit, and nothing from prompts; what is asked for does', () => {
  const expertMemory = 4e6
  const capped = open('auto', 1e9, { expertMemory })
  expect(hasHead(capped), 'there is room beside what experts may have').toBe(true)
  expect(capped.budget.slots).toBe(open(false, 1e9, { expertMemory }).budget.slots)
  expect(hasHead(open('auto', 1e9))).toBe(true)
  const roomy = least('auto', plan => plan.guesses === 3)
  const tight = least('auto', hasHead)
  expect(tight, 'one guess takes less').toBeLessThan(roomy)
  expect(open('auto', tight)).toMatchObject({ guesses: 1, budget: { way: { notice: null } } })
  expect(open('auto', tight).budget.slots).toBeGreaterThanOrEqual(0.98 * open(false, tight).budget.slots)
  const short = open('auto', tight - 20_000)
  expect(hasHead(short)).toBe(false)
  expect(short.noDrafts).toMatch(/better use/)
  expect(hasHead(open(true, tight - 20_000))).toBe(true)
})

test('a model that was to guess and has no memory for it answers without, and says so once', async () => {
  const wasmHost = hostWith(least(true, hasHead) - 1e6)
  const notices: string[] = []
  const options = { backend: 'wasm', drafts: 2, onNotice: (line: string) => notices.push(line) } as const
  const model = new EngineModel(await openModelParts(demoModel, options, { wasmHost }))
  expect(notices.filter(line => line.startsWith('no guessing ahead: memory is short'))).toHaveLength(1)
  expect(model.stats().drafts).toBeNull()
  const context = model.createContext()
  expect(await context.draft(1, 2)).toEqual([])
  expect(await context.evalPrompt([1, 2, 3])).toHaveLength(model.vocabSize)
  await model.close()
})
