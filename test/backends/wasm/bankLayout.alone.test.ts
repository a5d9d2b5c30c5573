// Memory against the plan, in processes of their own: what a model really takes at most is within the plan and a tenth, at any
// budget for experts, on the wasm backend and with experts in memory beside a GPU.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { swiftShaderEnvironment } from '../../support/gpu/swiftShaderFiles.js'
import { demoModel, packTiny } from '../../support/models/models.js'
import { repository } from '../../support/models/packedFiles.js'
import { hybridWay } from '../../support/models/tieredBackend.js'

const timeout = 120_000

async function measure(
  request: object,
): Promise<{ before: number; planned: number; peak: number; expertSlots: number }> {
  const script = join(repository, 'test/support/peakMemory.mjs')
  const env = { ...process.env, ...swiftShaderEnvironment() }
  const { stdout } = await promisify(execFile)(process.execPath, [script, JSON.stringify(request)], { env })
  return JSON.parse(stdout)
}

function expectWithin({ before, planned, peak }: { before: number; planned: number; peak: number }) {
  expect(peak / (before + planned)).toBeLessThan(1.1)
  expect(peak / (before + planned), 'a plan that is worth something').toBeGreaterThan(0.6)
}

test.each([500_000, 4_000_000, 40_000_000])('wasm, %i bytes of experts', { timeout }, async expertMemory => {
  const taken = await measure({ backend: 'wasm', folder: demoModel, expertMemory, prompt: 300, decodes: 48 })
  expectWithin(taken)
})

test('beside a GPU', { timeout }, async () => {
  const request = { backend: 'webgpu', folder: await packTiny(), precision: 'exact', way: hybridWay(1) }
  const taken = await measure({ ...request, gpuMemory: 400_000, expertMemory: 2_000_000, prompt: 16, decodes: 6 })
  expectWithin(taken)
})
