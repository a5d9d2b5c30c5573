// Random walks over every backend on a bad disk, each call compared with one that nothing disturbed. A few steps here;
// MOEFLUX_FAULT_WALK=1000 for more, MOEFLUX_FAULT_SEED for others.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type FaultModel, faultModel, faultRows } from '../support/faults/faultBackends.js'
import { faultWalk } from '../support/faults/faultWalk.js'

const { MOEFLUX_FAULT_WALK, MOEFLUX_FAULT_SEED = '1' } = process.env
const timeout = 60_000 + 1000 * Number(MOEFLUX_FAULT_WALK ?? 0)
let model: FaultModel
beforeAll(async () => {
  model = await faultModel()
})
afterAll(() => model.close())

// By default one emulated GPU: the other row walks in a tab (test/apps/browser/faultWalk.busy.test.ts).
const rows = faultRows.filter(row => MOEFLUX_FAULT_WALK !== undefined || row.name !== 'webgpu, byte sources')

test.each(rows.map(row => [row.name, row] as const))('%s', { timeout }, async (_, row) => {
  const steps = Number(MOEFLUX_FAULT_WALK ?? (row.isGpu ? 20 : 60))
  const { backend, disk } = await row.open(model.packed, 6)
  const { backend: oracle } = await row.open(model.packed, 30)
  const report = await faultWalk({
    ...{ backend, disk, oracle, seed: Number(MOEFLUX_FAULT_SEED), steps },
    tolerance: row.band?.maxDifference,
  })
  await Promise.all([backend.close(), oracle.close()])
  if (MOEFLUX_FAULT_WALK !== undefined) console.log(row.name, report)
  expect(report.problem).toBeNull()
  expect(report.faults).toBeGreaterThan(steps / 10)
  expect(report.failures).toBeGreaterThan(0)
})
