// Experts of prompts on matrix units against sums in float64, where there are no such units: their matrices are emulated, as for
// attention. scripts/checkTensors.mjs has the same checks for real ones.
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { matVec } from '#moeflux/compute/reference/matVec.js'
import { checkExperts } from '../../scripts/harness/checkTensorExperts.mjs'
import { emulateMatrices } from '../support/emulatedMatrices.js'
import { GpuArena } from '../support/gpuArena.js'
import { repository } from '../support/packedFiles.js'
import { seededRandom } from '../support/random.js'

const BAND = 2e-3 // of the largest value: half floats have 11 bits

// Columns for two loads of scales, experts of more than a tile. An emulated GPU's workgroups have less memory, so tiles are smaller.
const sizes = {
  ...{ hidden: 512, width: 256, group: 32, experts: 5, k: 2, counts: [20], most: 32 },
  tiles: [
    { pairs: 16, subgroups: 4 },
    { pairs: 32, subgroups: 4 },
  ],
} as const

test('experts on matrix units: both tiles, experts without tokens or in no slot, tokens alone, NaN of one', async () => {
  const arena = await GpuArena.open()
  emulateMatrices(arena.device)
  const problems: string[] = []
  let checks = 0
  const tools = {
    load: (name: string) => import(join(repository, 'dist/compute', name)) as Promise<unknown>,
    gpu: { ...arena.fast, tensors: true },
    put: (values: Float32Array | Uint32Array | Uint8Array) => arena.put(values),
    step: (tokens: number) => arena.step(tokens),
    run: (op: Parameters<GpuArena['run']>[0], tokens: number) => arena.run(op, { tokens }),
    read: (buffer: GPUBuffer, length: number) => arena.floats(buffer, length),
    random: seededRandom(1),
    matVec,
    report(what: string, worst: number, problem: string) {
      checks++
      if (!(worst <= BAND)) problems.push(`${what}: off by ${worst}`)
      if (problem !== '') problems.push(`${what}: ${problem}`)
    },
  }
  try {
    await checkExperts(tools, sizes)
  } finally {
    await arena.close()
  }
  expect(problems).toEqual([])
  expect(checks).toBe(2)
})
