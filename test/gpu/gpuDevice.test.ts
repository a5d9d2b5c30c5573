// Which GPUs count as cards with memory of their own, by the names that adapters give.
import { expect, test } from 'vitest'
import { hasOwnMemory } from '#moeflux/gpu/device/gpuDevice.js'

test.each([
  ['nvidia', 'hopper', 'NVIDIA H200', true],
  ['nvidia', 'ada', 'NVIDIA GeForce RTX 4060 Laptop GPU', true],
  ['nvidia', 'ampere', 'NVIDIA Tegra Orin (nvgpu)', false],
  ['nvidia', 'blackwell', 'NVIDIA GB10', false],
  ['amd', 'rdna-3', 'AMD Radeon RX 7900 XTX', true],
  ['amd', 'rdna-3', 'AMD Radeon 780M Graphics', false],
  ['amd', 'rdna-3', 'AMD Radeon(TM) Graphics', false],
  ['intel', 'xe-hpg', 'Intel(R) Arc(tm) A770 Graphics', true],
  ['intel', 'gen-12lp', 'Intel(R) Iris(R) Xe Graphics', false],
  ['apple', 'common-3', 'Apple M2', false],
  ['google', 'swiftshader', 'SwiftShader Device (Subzero)', false],
  ['qualcomm', 'adreno-7xx', 'Adreno X1-85', false],
  ['', '', '', false],
])('%s %s %s: %s', (vendor, architecture, device, own) => {
  expect(hasOwnMemory({ vendor, architecture, device, description: '' })).toBe(own)
})
