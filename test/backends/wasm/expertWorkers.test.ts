// Routed experts on threads of their own, against the reference, on models of random shapes: rows with more and fewer
// experts, several memories, one thread and three, jobs one after the other.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { loadModel } from '#moeflux/backends/reference/model.js'
import { nodeHost } from '#moeflux/backends/wasm/nodePlatform.js'
import { type HostEntry, HostWorkers } from '#moeflux/backends/wasm/workers/expertWorkers.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import type { LayerShape } from '#moeflux/model/layers.js'
import { sliceMatrix, sliceVector } from '#moeflux/ops/matmul/storedWeights.js'
import { type ExpertWeights, expert } from '#moeflux/ops/moe/reference.js'
import { rmsNorm } from '#moeflux/ops/norm/reference.js'
import { randomModel } from '../../support/models/randomModel.js'
import { expectClose, expectSameBits, KERNEL } from '../../support/ops/bands.js'
import { gptOssKinds } from '../../support/ops/kindShapes.js'
import { randomFloats, seededRandom } from '../../support/random.js'

const layers = ['linear_attention', 'full_attention'] as const

function model(seed: number, kinds?: readonly LayerShape[]): PackedModel {
  const format = { bits: 4, group: 32, scaleType: 'BF16' } as const
  return randomModel({
    ...{ hidden: 96, heads: 3, kvHeads: 1, headDim: 32, keyHeads: 1, valueHeads: 3, keyDim: 16, valueDim: 32 },
    ...{ experts: 9, k: 3, intermediate: 64, sharedIntermediate: 32, vocab: 50, tied: false, seed },
    layers: kinds?.map(({ mixer }) => mixer.kind) ?? layers,
    ...{ formats: [format], expertFormats: [format, format, { ...format, bits: 8 }], kinds },
  })
}

function partsOf({ experts }: PackedModel, record: Uint8Array): ExpertWeights {
  const { gate, up, down, gateBias, upBias, downBias } = experts.layout
  return {
    gate: sliceMatrix(gate, record),
    up: sliceMatrix(up, record),
    down: sliceMatrix(down, record),
    gateBias: gateBias && sliceVector(gateBias, record),
    upBias: upBias && sliceVector(upBias, record),
    downBias: downBias && sliceVector(downBias, record),
  }
}

describe('experts on the host', () => {
  test.each([
    ['', undefined],
    [' with biases and a clamped activation', gptOssKinds],
  ])('random rows and experts%s: as the reference has them, the same for any number of threads', async (_, kinds) => {
    const packed = model(7, kinds)
    const { expertSize } = packed.experts.layout
    const { hiddenSize, rmsNormEps, numExperts } = packed.config
    const weights = await loadModel(packed, {})
    const norms = weights.layers.map(layer => layer.postAttentionNorm)
    const open = (threads: number, slots: number, bankLimit?: number) =>
      HostWorkers.open(
        packed,
        { precision: 'exact', expertsPerToken: 3, threads, slots, maxRows: 16, norms, bankLimit },
        nodeHost(),
      )
    const workers = [await open(1, numExperts), await open(3, numExperts)]
    try {
      for (const { slots, memories } of workers) {
        for (let e = 0; e < numExperts; e++) {
          const { bank, address } = slots[e]
          await packed.experts.files[1].read(
            e * expertSize,
            new Uint8Array(memories[bank].buffer as ArrayBuffer, address, expertSize),
          )
        }
      }
      const shape = fc.record({ rows: fc.integer({ min: 1, max: 16 }), seed: fc.integer({ min: 1, max: 2 ** 31 }) })
      const property = fc.asyncProperty(shape, async ({ rows, seed }) => {
        const random = seededRandom(seed)
        const hidden = randomFloats(random, rows * hiddenSize, 3)
        const normed = rmsNorm(hidden, norms[1], rmsNormEps)
        const entries = new Map<number, { slot: number; rows: number[]; weights: number[] }>()
        const want = new Float32Array(hidden.length)
        for (let row = 0; row < rows; row++) {
          const chosen = Array.from({ length: numExperts }, (_, e) => e).filter(() => random() < 0.2)
          for (const e of chosen.slice(0, 3)) {
            const entry = entries.get(e) ?? { slot: e, rows: [], weights: [] }
            const weight = Math.fround(random())
            entry.rows.push(row)
            entry.weights.push(weight)
            entries.set(e, entry)
            const record = new Uint8Array(expertSize)
            await packed.experts.files[1].read(e * expertSize, record)
            const x = normed.slice(row * hiddenSize, (row + 1) * hiddenSize)
            const { activation } = packed.config.layers[1].feedForward
            expert(partsOf(packed, record), x, activation).forEach((value, i) => {
              want[row * hiddenSize + i] += weight * value
            })
          }
        }
        if (entries.size === 0) return
        const list: HostEntry[] = [...entries.values()].sort((a, b) => a.slot - b.slot)
        const [one, three] = await Promise.all(workers.map(each => each.compute(1, hidden, list)))
        expectClose(one, want, KERNEL, 'one thread')
        expectSameBits(three, one, 'three threads')
      })
      await fc.assert(property, { numRuns: 40 })
    } finally {
      await Promise.all(workers.map(each => each.close()))
    }
  })

  test('slots over several memories', async () => {
    const packed = model(8)
    const norms = (await loadModel(packed, {})).layers.map(layer => layer.postAttentionNorm)
    const options = { precision: 'fast', expertsPerToken: 3, threads: 2, slots: 40, maxRows: 4, norms } as const
    const one = await HostWorkers.open(packed, options, nodeHost())
    const floor = Math.max(...one.slots.map(({ address }) => address)) - 30 * one.slotBytes
    const many = await HostWorkers.open(packed, { ...options, bankLimit: floor }, nodeHost())
    try {
      expect(many.memories.length).toBeGreaterThan(2)
      const { expertSize } = packed.experts.layout
      const hidden = randomFloats(seededRandom(3), 4 * packed.config.hiddenSize, 2)
      const entries = [0, 11, 25, 39].map((slot, row) => ({ slot, rows: [row, (row + 1) % 4], weights: [0.5, 0.25] }))
      const results: Float32Array[] = []
      for (const workers of [one, many]) {
        for (const [e, { slot }] of entries.entries()) {
          const { bank, address } = workers.slots[slot]
          const target = new Uint8Array(workers.memories[bank].buffer as ArrayBuffer, address, expertSize)
          await packed.experts.files[0].read(e * expertSize, target)
        }
        results.push(await workers.compute(0, hidden, entries))
      }
      expectSameBits(results[1], results[0], 'several memories')
    } finally {
      await one.close()
      await many.close()
    }
  })
})
