// Experts and resident matrices on matrix units against sums in float64, where there are no such units: they are emulated, as for
// attention. src/lab/kernels/checkTensors.mjs has the same checks for real ones.
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { activationBuffers } from '#moeflux/gpu/memory/activationBuffers.js'
import { matMulOp, takesHalves } from '#moeflux/ops/matmul/matMul.gpu.js'
import { matVec } from '#moeflux/ops/matmul/reference.js'
import { checkExperts } from '../../src/lab/kernels/checkTensorExperts.mjs'
import { emulateMatrices } from '../support/gpu/emulatedMatrices.js'
import { GpuArena } from '../support/gpu/gpuArena.js'
import { HALVES } from '../support/gpu/halfRows.js'
import { repository } from '../support/models/packedFiles.js'
import { expectClose, expectSameBits } from '../support/ops/bands.js'
import { randomFloats, randomQuantized, seededRandom } from '../support/random.js'

const BAND = 2e-3 // of the largest value: half floats have 11 bits

// Columns for two loads of scales, experts of more than a tile. An emulated GPU's workgroups have less memory, so tiles have fewer rows.
const sizes = {
  ...{ hidden: 512, width: 256, group: 32, experts: 4, k: 2, counts: [38], most: 40 },
  tiles: [
    { pairs: 16, subgroups: 4, fragRows: 1, stage: 64 },
    { pairs: 64, subgroups: 2, fragRows: 2, stage: 32 },
  ],
} as const

test('experts on matrix units: all kinds of tiles, experts without tokens or in no slot, tokens alone, NaN of one', async () => {
  const arena = await GpuArena.open()
  emulateMatrices(arena.device)
  const problems: string[] = []
  let checks = 0
  const tools = {
    load: (name: string) => import(join(repository, 'dist', name)) as Promise<unknown>,
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

test('a resident matrix on matrix units: rows and tokens that end within a tile, a token alone', async () => {
  const [ROWS, COLS, TOKENS, MOST] = [70, 512, 37, 128] // columns for two loads of scales
  const arena = await GpuArena.open()
  emulateMatrices(arena.device)
  try {
    const random = seededRandom(2)
    const gpu = { ...arena.fast, tensors: true }
    const weights = randomQuantized(random, ROWS, COLS, 4, 32)
    const parts = [arena.matrix(weights)]
    expect(takesHalves(gpu, parts, { maxTokens: MOST })).toBe(true)
    const x = randomFloats(random, TOKENS * COLS, 3)
    const product = async (rows: Float32Array) => {
      const tokens = rows.length / COLS
      const input = activationBuffers(gpu, MOST, COLS, 'x')
      arena.device.queue.writeBuffer(input.values, 0, new Float32Array(rows))
      const out = arena.poisoned(MOST * ROWS)
      const options = { step: arena.step(tokens), maxTokens: MOST, outStride: ROWS, label: 'check' }
      await arena.run(await matMulOp(gpu, parts, input, out, options), { tokens })
      return arena.floats(out, tokens * ROWS)
    }
    const got = await product(x)
    const rowOf = (token: number) => x.subarray(token * COLS, (token + 1) * COLS)
    const want = Array.from({ length: TOKENS }, (_, token) => [...matVec(weights, rowOf(token))]).flat()
    expectClose(got, want, HALVES, 'product')
    expectSameBits(await product(rowOf(TOKENS - 1)), got.subarray((TOKENS - 1) * ROWS), 'a token alone')
  } finally {
    await arena.close()
  }
})
