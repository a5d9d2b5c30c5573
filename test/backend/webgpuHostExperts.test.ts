// Decoding with experts on both sides: those in slots on the GPU, the others on the host, here in plain JavaScript.
import { describe, expect, test } from 'vitest'
import { expert } from '#moeflux/compute/reference/expert.js'
import { loadModel } from '#moeflux/compute/reference/loadModel.js'
import { openReferenceBackend } from '#moeflux/compute/reference/referenceBackend.js'
import { rmsNorm } from '#moeflux/compute/reference/rmsNorm.js'
import { sliceMatrix } from '#moeflux/compute/reference/weights.js'
import type { HostExperts } from '#moeflux/compute/webgpu/hostExperts.js'
import { openWebgpuBackend } from '#moeflux/compute/webgpu/webgpuBackend.js'
import { openNodeFolder } from '#moeflux/storage/nodeFolder.js'
import { openPacked } from '#moeflux/storage/openPacked.js'
import type { PackedModel } from '#moeflux/storage/packedModel.js'
import { expectClose, KERNEL } from '../support/bands.js'
import { packTiny } from '../support/models.js'
import '../support/swiftShader.js'

/** Experts in float32, one after the other, with a count of how many it was asked for. */
async function plainHost(packed: PackedModel): Promise<HostExperts & { asked: { pairs: number } }> {
  const { config, experts } = packed
  const { expertSize } = experts.layout
  const { layers } = await loadModel(packed, {})
  const asked = { pairs: 0 }
  return {
    asked,
    leastToBring: 4,
    async compute(layer, hidden, pairs) {
      asked.pairs += pairs.length
      const width = config.hiddenSize
      const normed = rmsNorm(hidden, layers[layer].postAttentionNorm, config.rmsNormEps)
      const out = new Float32Array(hidden.length)
      for (const pair of pairs) {
        const record = new Uint8Array(expertSize)
        await experts.files[layer].read(pair.expert * expertSize, record)
        const { gate, up, down } = experts.layout
        const weights = {
          gate: sliceMatrix(gate, record),
          up: sliceMatrix(up, record),
          down: sliceMatrix(down, record),
        }
        const rows = expert(weights, normed.slice(pair.token * width, (pair.token + 1) * width))
        rows.forEach((value, i) => {
          out[pair.token * width + i] += pair.weight * value
        })
      }
      return out
    },
  }
}

describe('experts on both sides, exact', () => {
  test.each([2, 5])(
    '%s·K slots: prompts and single tokens of three sequences as the reference has them',
    async share => {
      const packed = await openPacked(await openNodeFolder(await packTiny('separate'), { links: 'any' }))
      const { expertsPerToken, vocabSize } = packed.config
      const options = { precision: 'exact', expertsPerToken } as const
      const host = await plainHost(packed)
      const expertMemory = share * expertsPerToken * (packed.experts.layout.expertSize + 64)
      const reference = await openReferenceBackend(packed, options)
      const hybrid = await openWebgpuBackend(packed, { ...options, expertMemory }, { host })
      try {
        const [want, got] = await Promise.all(
          [reference, hybrid].map(async backend => {
            const sequences = [0, 1, 2].map(() => backend.createSequence())
            const logits: Float32Array[] = []
            for (let step = 0; step < 6; step++) {
              const runs = sequences.map((sequence, i) => ({
                sequence,
                tokens: [(step * 7 + i * 31) % vocabSize],
                phase: 'decode' as const,
                output: 'last' as const,
              }))
              for (const output of await backend.step(runs)) logits.push(output.logits as Float32Array)
            }
            return logits
          }),
        )
        got.forEach((row, i) => {
          expectClose(row, want[i], KERNEL, `logits ${i}`)
        })
        expect(host.asked.pairs, 'experts on the host').toBeGreaterThan(0)
        const { expertMisses, expertHits } = hybrid.stats()
        expect(expertMisses).toBeGreaterThan(0)
        expect(expertHits + expertMisses).toBeGreaterThan(host.asked.pairs / 33)
      } finally {
        await hybrid.close()
        await reference.close()
      }
    },
    240_000,
  )
})
