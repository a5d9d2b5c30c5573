// A GGUF file of mixed precision (Q4_K, and Q6_K in some layers) against another implementation's logits, computed from the
// file's own values. The model is random and small, which makes it chaotic: the rounding of scale products moves its logits by
// one percent, int8 activations by some more. Files whose types are re-laid without loss come within 1e-4.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openModel } from '#moeflux/session/openModel.js'
import { packFolder } from '#moeflux/storage/packFolder.js'
import { backends } from '../support/backends.js'
import { cosine } from '../support/closeness.js'
import { readTensors } from '../support/goldens.js'
import { repository } from '../support/packedFiles.js'

const VOCABULARY = 1024
const data = (name: string) => join(repository, 'test/data/gguf', name)
const folder = mkdtempSync(join(tmpdir(), 'moeflux-gguf-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

beforeAll(async () => {
  await packFolder(data('tiny-moe-Q4_K_M.gguf'), folder)
})

const rows = [
  { name: 'reference', tokens: 64, least: 0.998, median: 0.2 },
  { name: 'wasm exact', tokens: 64, least: 0.998, median: 0.2 },
  { name: 'wasm fast', tokens: 64, least: 0.97, median: 1.5 },
  { name: 'webgpu exact', tokens: 6, least: 0.998, median: 0.3 },
]

test.each(rows)('$name', async ({ name, tokens, least, median }) => {
  const goldens = readTensors(data('golden.safetensors'))
  const ids = [...(goldens.get('ids') as Int32Array)].slice(0, tokens)
  const want = (goldens.get('logits_Q4_K_M') as Float32Array).subarray(0, tokens * VOCABULARY)
  const model = await openModel(folder, backends.find(backend => backend.name === name)!.options)
  try {
    const evaluated = await model.createContext().evaluate(ids, { logits: 'all' })
    const logits = evaluated.logits as Float32Array
    expect(cosine(logits, want)).toBeGreaterThan(least)
    const differences = ids.map((_, row) => largestDifference(logits, want, row * VOCABULARY)).sort((a, b) => a - b)
    expect(differences[ids.length >> 1]).toBeLessThan(median)
  } finally {
    await model.close()
  }
})

function largestDifference(got: Float32Array, want: Float32Array, start: number): number {
  let largest = 0
  for (let i = start; i < start + VOCABULARY; i++) largest = Math.max(largest, Math.abs(got[i] - want[i]))
  return largest
}
