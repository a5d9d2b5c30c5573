// The demo model's greedy text, wherever its experts are and whoever computes them: by processors alone, and with some on a
// GPU. (With all of them there it is compared in goldens.gpu.test.ts.)
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Backend, BackendOptions } from '#moeflux/backends/backend.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { Goldens } from '../support/models/goldens.js'
import { demoModel } from '../support/models/models.js'
import { hybridWay, openTiered } from '../support/models/tieredBackend.js'

const count = 6 // tokens of an answer
const promptTokens = 12
let packed: PackedModel
let want: number[] // by processors alone: no expert is on a GPU
beforeAll(async () => {
  packed = await openPacked(await openNodeFolder(demoModel, { links: 'any' }))
  const options: BackendOptions = { precision: 'exact', expertsPerToken: packed.config.expertsPerToken, threads: 1 }
  want = await answer(await openWasmBackend(packed, options))
})
afterAll(() => packed.close())

async function answer(backend: Backend): Promise<number[]> {
  try {
    const sequence = backend.createSequence()
    const prompt = [...new Goldens('demo').ints('p0.input_ids')].slice(0, promptTokens)
    const tokens: number[] = []
    for (let phase: 'prompt' | 'decode' = 'prompt', next = prompt; tokens.length < count; phase = 'decode') {
      for (let start = 0; start < next.length; start += backend.chunkTokens) {
        const chunk = next.slice(start, start + backend.chunkTokens)
        const [{ argmax }] = await backend.step([{ sequence, tokens: chunk, phase, output: 'argmax' }])
        if (start + chunk.length === next.length) tokens.push(argmax as number)
      }
      next = [tokens[tokens.length - 1]]
    }
    return tokens
  } finally {
    await backend.close()
  }
}

test.each([
  ['half', 0.5],
  ['as few as can be', 0],
])('%s of the experts on the GPU', { timeout: 120_000 }, async (_, share) => {
  const { numLayers, numExperts, expertsPerToken } = packed.config
  const all = numLayers * numExperts
  const gpu = Math.max(2 * expertsPerToken, Math.floor(share * all))
  const backend = await openTiered(packed, { gpu, memory: all - gpu }, {}, { chunkTokens: 64, way: hybridWay })
  const got = await answer(backend)
  const { tiers } = backend.stats()
  expect(got).toEqual(want)
  expect(tiers?.computedOnCpu, 'by processors').toBeGreaterThan(0)
  expect(tiers?.computedOnGpu, 'by the GPU').toBeGreaterThan(0)
})
