// Attention on matrix units against the reference, where there are no such units: their matrices are emulated, so this is about what
// the kernel does with them. What real ones make of it is the business of src/lab/kernels/checkTensors.mjs, which has the same checks.
import { expect, test } from 'vitest'
import type { Op } from '#moeflux/gpu/device/op.js'
import * as reference from '#moeflux/ops/attention/reference.js'
import * as kernel from '#moeflux/ops/attention/tensorAttention.gpu.js'
import { type AttentionSizes, checkAttention } from '../../src/lab/kernels/checkTensorAttention.mjs'
import { emulateMatrices } from '../support/gpu/emulatedMatrices.js'
import { GpuArena } from '../support/gpu/gpuArena.js'
import { randomFloats, seededRandom } from '../support/random.js'

// All that there is at once: compiling for another shape takes longer than all of this.
const shapes: AttentionSizes[] = [
  { numHeads: 8, numKvHeads: 1, headDim: 64, outputGate: true, window: 60, sinks: true },
]
const plans = [
  [
    { past: 31, count: 14 },
    { past: 0, count: 2 },
    { past: 70, count: 5 },
  ],
]

test('attention on matrix units: rows, runs, windows and sinks; scores that grow; what is not finite', async () => {
  const arena = await GpuArena.open()
  emulateMatrices(arena.device)
  const random = seededRandom(1)
  const problems: string[] = []
  let checks = 0
  const tools = {
    load: async (name: string) =>
      ({ 'ops/attention/tensorAttention.gpu.js': kernel, 'ops/attention/reference.js': reference })[name],
    gpu: { ...arena.fast, tensors: true },
    put: (values: Float32Array | Uint32Array) => arena.put(values),
    step: (tokens: number, runs: number) => arena.step(tokens, runs),
    run: (op: Op, tokens: number, runs: number) => arena.run(op, { tokens, runs }),
    read: (buffer: GPUBuffer, length: number) => arena.floats(buffer, length),
    randomFloats: (length: number, scale: number) => randomFloats(random, length, scale),
    report(what: string, worst: number, problem: string, band: number) {
      checks++
      if (!(worst <= band)) problems.push(`${what}: off by ${worst}`)
      if (problem !== '') problems.push(`${what}: ${problem}`)
    },
  }
  try {
    await checkAttention(tools, { shapes, plans, wrongs: [Number.NaN] })
  } finally {
    await arena.close()
  }
  expect(problems).toEqual([])
  expect(checks).toBe(1 + 1 + 3)
})
