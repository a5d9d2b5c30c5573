// The delta rule of prompts as GPUs with large subgroups compute it: eight threads share two rows of the state. No emulated GPU has such
// subgroups, so shuffles go through workgroup memory.
import { expect, test } from 'vitest'
import type { StatePool } from '#moeflux/gpu/memory/statePool.js'
import type { ModelConfig } from '#moeflux/model/config.js'
import { linearColumns, stateQuads } from '#moeflux/model/linearShape.js'
import { gatedDeltaOp } from '#moeflux/ops/gatedDelta/gatedDelta.gpu.js'
import { deltaGates, gatedDelta } from '#moeflux/ops/gatedDelta/reference.js'
import { withShuffles } from '../support/gpu/emulatedShuffles.js'
import { GpuArena } from '../support/gpu/gpuArena.js'
import { expectClose, expectSameBits, KERNEL } from '../support/ops/bands.js'
import { randomFloats, seededRandom } from '../support/random.js'

const [KEY_HEADS, HEADS, KEY_DIM, VALUE_DIM, TOKENS] = [1, 2, 64, 16, 19]
const CHANNELS = 2 * KEY_HEADS * KEY_DIM + HEADS * VALUE_DIM
const config = {
  ...{ linearKeyHeads: KEY_HEADS, linearValueHeads: HEADS, linearKeyDim: KEY_DIM, linearValueDim: VALUE_DIM },
  linearConvDim: CHANNELS,
} as ModelConfig

test('eight threads a row: right, and the same bits wherever a prompt is cut', async () => {
  const arena = await GpuArena.open()
  try {
    const random = seededRandom(7)
    const { stride, a, b } = linearColumns(config)
    const [inputs, convolved] = [randomFloats(random, TOKENS * stride, 2), randomFloats(random, TOKENS * CHANNELS, 0.3)]
    const [aLog, dtBias] = [randomFloats(random, HEADS), randomFloats(random, HEADS)]
    const gates = Float32Array.from({ length: 2 * HEADS }, (_, i) =>
      i % 2 === 0 ? -Math.exp(aLog[i >> 1]) : dtBias[i >> 1],
    )
    const floats = stateQuads(config) * 4
    const pool = { generation: 0, buffer: () => states }
    let states: GPUBuffer
    /** Runs of the tokens between cuts, each of which begins with the state that the one before has left. */
    const evaluate = async (...cuts: number[]) => {
      states = arena.put(new Float32Array(cuts.length * floats))
      const out = arena.poisoned(TOKENS * HEADS * VALUE_DIM)
      for (const [i, first] of cuts.slice(0, -1).entries()) {
        const run = Uint32Array.of(first, cuts[i + 1] - first, i, i + 1)
        const buffers = { gates: arena.put(gates), inputs: arena.put(inputs), convolved: arena.put(convolved) }
        const gpu = { ...arena.exact, tensors: true }
        pool.generation++
        const make = () =>
          gatedDeltaOp(gpu, config, { ...buffers, runInfo: arena.put(run), out }, pool as unknown as StatePool, 0)
        await arena.run(await withShuffles(arena.device, make))
      }
      const all = await arena.floats(states, cuts.length * floats)
      const recurrent = all.subarray((cuts.length - 1) * floats + CHANNELS * 4, cuts.length * floats)
      return { out: await arena.floats(out, TOKENS * HEADS * VALUE_DIM), recurrent }
    }
    const columns = (from: Float32Array, width: number, at: number, count: number) =>
      Float32Array.from({ length: TOKENS * count }, (_, i) => from[Math.floor(i / count) * width + at + (i % count)])
    const recurrent = new Float32Array(HEADS * VALUE_DIM * KEY_DIM)
    const want = gatedDelta(
      {
        q: columns(convolved, CHANNELS, 0, KEY_DIM),
        k: columns(convolved, CHANNELS, KEY_DIM, KEY_DIM),
        v: columns(convolved, CHANNELS, 2 * KEY_DIM, HEADS * VALUE_DIM),
        ...deltaGates(columns(inputs, stride, a, HEADS), columns(inputs, stride, b, HEADS), aLog, dtBias),
      },
      recurrent,
      { keyHeads: KEY_HEADS, valueHeads: HEADS, keyDim: KEY_DIM, valueDim: VALUE_DIM },
    )
    const whole = await evaluate(0, TOKENS)
    expectClose(whole.out, want, KERNEL, 'out')
    // The state lies [head][keyDim / 4][valueDim] in fours.
    const laid = Float32Array.from(recurrent, (_, i) => {
      const [four, row, quad] = [i % 4, (i >> 2) % VALUE_DIM, Math.floor(i / 4 / VALUE_DIM) % (KEY_DIM / 4)]
      const head = Math.floor(i / (VALUE_DIM * KEY_DIM))
      return recurrent[(head * VALUE_DIM + row) * KEY_DIM + quad * 4 + four]
    })
    expectClose(whole.recurrent, laid, KERNEL, 'state')
    for (const cuts of [
      [0, 5, TOKENS],
      [0, 8, 16, 17, TOKENS],
    ]) {
      const cut = await evaluate(...cuts)
      expectSameBits(cut.out, whole.out, `out, cut at ${cuts}`)
      expectSameBits(cut.recurrent, whole.recurrent, `state, cut at ${cuts}`)
    }
    expect(whole.out.length).toBe(TOKENS * HEADS * VALUE_DIM)
  } finally {
    await arena.close()
  }
})
