// GGUF files against another implementation's logits, computed from the files' own values, which are kept to the bit: one of
// mixed precision (Q4_K, and Q6_K in some layers) with experts; dense ones with a codebook type, and in three parts. The
// models are random and small, which makes them chaotic: int8 activations move their logits by some percent.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openModel } from '#moeflux/chat/openModel.js'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { backends } from '../support/backends.js'
import { readTensors } from '../support/models/goldens.js'
import { repository } from '../support/models/packedFiles.js'
import { cosine } from '../support/ops/closeness.js'

const VOCABULARY = 1024
const data = (name: string) => join(repository, 'test/data/gguf', name)

const files = [
  { file: 'tiny-moe-Q4_K_M.gguf', golden: 'golden.safetensors', logits: 'logits_Q4_K_M', family: 'qwen3_5_moe' },
  { file: 'tiny-dense-IQ4_XS.gguf', golden: 'golden-dense.safetensors', logits: 'logits_IQ4_XS', family: 'qwen3_5' },
  {
    file: 'tiny-dense-Q4_0-00001-of-00003.gguf',
    golden: 'golden-dense.safetensors',
    logits: 'logits_Q4_0',
    family: 'qwen3_5',
  },
]

const rows = [
  { name: 'reference', tokens: 64, least: 0.9999999, most: 5e-4 },
  { name: 'wasm exact', tokens: 64, least: 0.9999999, most: 5e-4 },
  { name: 'wasm fast', tokens: 64, least: 0.985, most: 10 },
  { name: 'webgpu exact', tokens: 6, least: 0.9999999, most: 2e-3 },
]

describe.each(files)('$file', ({ file, golden, logits: key, family }) => {
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-gguf-'))
  const goldens = readTensors(data(golden))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  beforeAll(async () => {
    await packFolder(data(file), folder)
  })

  test.each(rows)('$name', async ({ name, tokens, least, most }) => {
    const ids = [...(goldens.get('ids') as Int32Array)].slice(0, tokens)
    const want = (goldens.get(key) as Float32Array).subarray(0, ids.length * VOCABULARY)
    const model = await openModel(folder, backends.find(backend => backend.name === name)!.options)
    try {
      expect(model.config.family).toBe(family)
      const evaluated = await model.createContext().evaluate(ids, { logits: 'all' })
      const logits = evaluated.logits as Float32Array
      expect(cosine(logits, want)).toBeGreaterThan(least)
      expect(largestDifference(logits, want)).toBeLessThan(most)
    } finally {
      await model.close()
    }
  })
})

function largestDifference(got: Float32Array, want: Float32Array): number {
  return want.reduce((largest, value, i) => Math.max(largest, Math.abs(got[i] - value)), 0)
}
