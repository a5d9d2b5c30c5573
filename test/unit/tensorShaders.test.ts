// The kernel for matrix units as text: no emulated GPU has such units, so what can be known without one is that Dawn accepts it, and
// that loops are written out as often as they run. Numbers are checked on a GPU that has them, by scripts/checkTensors.mjs.
import { expect, test } from 'vitest'
import { shaderSource } from '#moeflux/compute/webgpu/shaderSource.js'

const FORMAT = { SUBGROUPS: true, PACKED_DOT: true, TENSOR: true, BITS: 4, GROUP: 64, SCALE_F16: false }
const TILES = [
  { SUB_TOKENS: 4, SUB_ROWS: 2, FRAG_TOKENS: 2, FRAG_ROWS: 4, ROW_TASKS: 1, TOKEN_TASKS: 4 },
  { SUB_TOKENS: 2, SUB_ROWS: 2, FRAG_TOKENS: 2, FRAG_ROWS: 4, ROW_TASKS: 2, TOKEN_TASKS: 4 },
  { SUB_TOKENS: 2, SUB_ROWS: 2, FRAG_TOKENS: 2, FRAG_ROWS: 2, ROW_TASKS: 1, TOKEN_TASKS: 4 },
]
const EXPERTS = [
  { SINGLE: false, GATHER: true, ROWS_SHARE: 8 },
  { SINGLE: true, GATHER: false, ROWS_SHARE: 1 },
].map(each => ({ ...each, SUB_ROWS: 4, FRAG_ROWS: 2, FRAG_TOKENS: 4, ROW_TASKS: 2, TOKEN_TASKS: 4, PAIRS_AT: 4096 }))

test('loops of a shader are written out', () => {
  const code = shaderSource('tensorMul', { ...FORMAT, SINGLE: true, ...TILES[1] })
  expect(code).not.toMatch(/#|\$\(/)
  expect(code.match(/var sums_\d_\d/g)).toEqual([0, 1].flatMap(m => [0, 1, 2, 3].map(n => `var sums_${m}_${n}`)))
  expect(code.match(/subgroupMatrixMultiplyAccumulate/g)).toHaveLength(4 * 2 * 4)
})

test('Dawn accepts them where the feature is there', async () => {
  const name = 'webgpu' // its types are another version's than ours
  const { create } = (await import(name)) as { create(options: string[]): GPU }
  const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis'])
  const adapter = (await gpu.requestAdapter()) as GPUAdapter
  const features = ['chromium-experimental-subgroup-matrix', 'shader-f16', 'subgroups'] as GPUFeatureName[]
  const device = await adapter.requestDevice({ requiredFeatures: features })
  for (const tile of TILES) {
    for (const more of [{ SINGLE: true }, { SINGLE: false, SCALE_F16: true, GROUP: 128 }]) {
      const module = device.createShaderModule({ code: shaderSource('tensorMul', { ...FORMAT, ...tile, ...more }) })
      const { messages } = await module.getCompilationInfo()
      expect(messages.map(({ message }) => message)).toEqual([])
    }
  }
  for (const grouped of EXPERTS) {
    const module = device.createShaderModule({ code: shaderSource('tensorExperts', { ...FORMAT, ...grouped }) })
    const { messages } = await module.getCompilationInfo()
    expect(messages.map(({ message }) => message)).toEqual([])
  }
  device.destroy()
  expect(gpu).toBeDefined() // Dawn lives as long as it is held
})
