// The kernels for matrix units as text: no emulated GPU has such units, so what can be known without one is that Dawn accepts them, and
// that loops are written out as often as they run. Numbers are checked on a GPU that has them, by src/lab/kernels/checkTensors.mjs.
import { expect, test } from 'vitest'
import { shaderSource } from '#moeflux/gpu/device/shaderSource.js'
import { tensorAttentionTile } from '#moeflux/ops/attention/tensorAttention.gpu.js'

const FORMAT = { SUBGROUPS: true, PACKED_DOT: true, TENSOR: true, BITS: 4, GROUP: 64, SCALE_F16: false }
const TILES = [
  { SUB_TOKENS: 4, SUB_ROWS: 2, FRAG_TOKENS: 2, FRAG_ROWS: 4, ROW_TASKS: 1, TOKEN_TASKS: 4 },
  { SUB_TOKENS: 2, SUB_ROWS: 2, FRAG_TOKENS: 2, FRAG_ROWS: 2, ROW_TASKS: 1, TOKEN_TASKS: 4 },
  { SUB_TOKENS: 2, SUB_ROWS: 2, FRAG_TOKENS: 1, FRAG_ROWS: 2, ROW_TASKS: 1, TOKEN_TASKS: 2 },
]
const EXPERTS = [
  { SINGLE: false, GATHER: true, ROWS_SHARE: 8, FRAG_ROWS: 1, SURE: 1, MORE: 0, STAGE: 64, TOKEN_TASKS: 1 },
  { SINGLE: true, GATHER: false, ROWS_SHARE: 1, FRAG_ROWS: 2, SURE: 2, MORE: 2, STAGE: 32, TOKEN_TASKS: 2 },
].map(each => ({ ...each, SUB_ROWS: 4, ROW_TASKS: 1, STEPS: each.STAGE / 16, PAIRS_AT: 4096 }))

const ATTENTION = { SUBGROUPS: true, PACKED_DOT: true, IN_STRIDE: 9216, PAGE_TOKENS: 64, SCALE: 0.1, SINKS: false }
const HEADS = [
  { HEADS: 16, KV_HEADS: 2, HEAD_DIM: 256, WINDOW: 0, GATED: true },
  { HEADS: 64, KV_HEADS: 8, HEAD_DIM: 64, WINDOW: 128, GATED: false, SINKS: true },
].map(heads => ({ ...ATTENTION, ...heads, ...tensorAttentionTile(heads.HEAD_DIM) }))

test('loops of a shader are written out', () => {
  const code = shaderSource('tensorMul', { ...FORMAT, SINGLE: true, ...TILES[0] })
  expect(code).not.toMatch(/#|\$\(/)
  expect(code.match(/var sums_\d_\d/g)).toEqual([0, 1].flatMap(m => [0, 1, 2, 3].map(n => `var sums_${m}_${n}`)))
  expect(code.match(/subgroupMatrixMultiplyAccumulate/g)).toHaveLength(4 * 2 * 4)
})

test('what workgroups share of attention is laid out in steps of 16 bytes, and is not more than there is', () => {
  for (const heads of HEADS) {
    const code = shaderSource('tensorAttention', heads)
    const bytes = [...code.matchAll(/var<workgroup> \w+: array<([\w<>]+), ([^>]+)>;/g)].map(([, type, length]) => {
      return (type === 'f16' ? 2 : 4) * countOf(length, heads)
    })
    expect(bytes).toHaveLength(code.match(/var<workgroup>/g)?.length ?? 0)
    expect(bytes.map(size => size % 16)).toEqual(bytes.map(() => 0))
    expect(bytes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(49152)
  }
})

test('Dawn accepts them where the feature is there', async () => {
  const name = 'webgpu' // its types are another version's than ours
  const { create } = (await import(name)) as { create(options: string[]): GPU }
  const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis'])
  const adapter = (await gpu.requestAdapter()) as GPUAdapter
  const features = ['chromium-experimental-subgroup-matrix', 'shader-f16', 'subgroups'] as GPUFeatureName[]
  const device = await adapter.requestDevice({ requiredFeatures: features })
  const kinds = [{ SINGLE: true }, { SINGLE: false, SCALE_F16: true, GROUP: 128 }]
  const products = TILES.flatMap(tile => kinds.map(kind => shaderSource('tensorMul', { ...FORMAT, ...tile, ...kind })))
  const experts = EXPERTS.map(grouped => shaderSource('tensorExperts', { ...FORMAT, ...grouped }))
  const attention = HEADS.map(heads => shaderSource('tensorAttention', heads))
  for (const code of [...products, ...experts, ...attention]) {
    const { messages } = await device.createShaderModule({ code }).getCompilationInfo()
    expect(messages.map(({ message }) => message)).toEqual([])
  }
  device.destroy()
  expect(gpu).toBeDefined() // Dawn lives as long as it is held
})

/** A product of constants, as the shader writes them. */
function countOf(product: string, { TILE, ROWS, HEAD_DIM }: Record<string, number | boolean>): number {
  const strides = { STRIDE: Number(HEAD_DIM) + 8, SCORE_STRIDE: Number(TILE) + 4, WEIGHT_STRIDE: Number(TILE) + 8 }
  const known: Record<string, number> = { TILE: Number(TILE), ROWS: Number(ROWS), ...strides }
  return product.split(' * ').reduce((all, factor) => all * (known[factor] ?? Number.parseInt(factor, 10)), 1)
}
