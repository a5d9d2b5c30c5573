// Products of weights in blocks in WGSL against plain arithmetic on their values: every format, one token and many, exact and
// with int8 activations, with subgroups and without.
import { afterAll, beforeAll, describe, test } from 'vitest'
import { activationBuffers } from '#moeflux/gpu/memory/activationBuffers.js'
import { formatOf } from '#moeflux/gpu/memory/matrixWeights.js'
import { BLOCK_FORMATS, type BlockFormat, type BlockSpan } from '#moeflux/model/blockFormats.js'
import { matMulOp } from '#moeflux/ops/matmul/matMul.gpu.js'
import { matVecOp } from '#moeflux/ops/matmul/matVec.gpu.js'
import { matVec } from '#moeflux/ops/matmul/reference.js'
import { GpuArena } from '../support/gpu/gpuArena.js'
import { expectClose } from '../support/ops/bands.js'
import { type RandomBlocks, randomBlocks } from '../support/ops/randomBlocks.js'
import { randomFloats, seededRandom } from '../support/random.js'

const TIGHT = { cosine: 0.9999999, maxDifference: 1e-4 }
const FAST = { cosine: 0.9995, maxDifference: 0.05 }

/** Shaders take long to compile: the portable ones of two formats, which between them have all that differs there. */
const portable = { subgroups: false, packedDot: false, defaultLimits: true }
const devices = [
  { name: 'subgroups', options: {}, formats: [...BLOCK_FORMATS.keys()] },
  { name: 'portable', options: portable, formats: ['mxfp4', 'q2_k'] },
]

function spansOf({ scale, name }: BlockFormat): readonly (readonly [BlockSpan, cols: number])[] {
  if (scale !== 'product') return [[0, 96]]
  return name === 'q4_k'
    ? [
        [128, 384],
        [256, 512],
      ]
    : [[256, 512]]
}

const cases = [...BLOCK_FORMATS.values()].flatMap(format =>
  spansOf(format).map(([span, cols]) => ({ format, span, cols, name: `${format.name}, spans of ${span}` })),
)

describe.each(devices)('weights in blocks, $name', ({ options, formats }) => {
  let arena: GpuArena
  beforeAll(async () => {
    arena = await GpuArena.open(options)
  })
  afterAll(() => arena.close())

  function part({ format, span, rows, cols, weight, scales }: RandomBlocks) {
    const at = Math.ceil(weight.length / 256) * 256
    const bytes = new Uint8Array(at + Math.ceil(scales.length / 256) * 256)
    bytes.set(weight)
    bytes.set(scales, at)
    const matrix = { kind: 'blocks', name: 'test', rows, cols, block: format.name, span } as const
    const ranges = { weight: { offset: 0, size: weight.length }, scales: { offset: at, size: scales.length } }
    const segments = [{ rows, weight: 0, scales: at, biases: 0, out: 0 }]
    return { buffer: arena.put(bytes), format: formatOf({ ...matrix, ...ranges }), cols, segments }
  }

  test.each(cases.filter(({ format }) => formats.includes(format.name)))('$name', async ({ format, span, cols }) => {
    const rows = 21
    const tokens = 5
    const blocks = randomBlocks(format, span, rows, cols, 3)
    const x = randomFloats(seededRandom(9), tokens * cols, 2)
    const want = matVec({ kind: 'plain', rows, cols, values: blocks.values }, x)
    for (const gpu of [arena.exact, arena.fast]) {
      const band = gpu === arena.fast ? FAST : TIGHT
      const input = activationBuffers(gpu, tokens, cols, 'x')
      arena.device.queue.writeBuffer(input.values, 0, x)
      const [many, one] = [arena.poisoned(tokens * rows), arena.poisoned(tokens * rows)]
      const product = { step: arena.step(tokens), maxTokens: tokens, outStride: rows, label: 'test' }
      await arena.run(await matMulOp(gpu, [part(blocks)], input, many, product), { tokens })
      expectClose(await arena.floats(many, tokens * rows), want, band)
      const single = { status: arena.put(new Uint32Array(4)), outStride: rows, label: 'test' }
      await arena.run(await matVecOp(gpu, [part(blocks)], arena.put(x), one, single), { tokens })
      expectClose(await arena.floats(one, tokens * rows), want, band)
    }
  })
})
