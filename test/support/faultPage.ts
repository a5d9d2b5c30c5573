// What the fault tests run inside a page: backends over byte sources that fail as told.

import { browserHost } from '#moeflux/browser/browserHost.js'
import type { Backend } from '#moeflux/compute/backend.js'
import { openWasmBackend } from '#moeflux/compute/wasm/wasmBackend.js'
import { openWebgpuBackend } from '#moeflux/compute/webgpu/openWebgpuBackend.js'
import { slotLayout } from '#moeflux/compute/webgpu/slotLayout.js'
import { SourceFaults } from './badDisk.js'
import { faultShape } from './faultShape.js'
import { type FaultWalkReport, faultWalk } from './faultWalk.js'
import { randomModel } from './randomModel.js'

/** With so many threads on wasm; 'tiers': some experts on the GPU, others in memory, computed by a worker. */
export type PageBackend = 'webgpu' | 'tiers' | 1 | 2 | 3

declare global {
  interface Window {
    walkFaults(kind: PageBackend, seed: number, steps: number, tolerance: number): Promise<FaultWalkReport>
  }
}

const wasmHost = browserHost({
  kernels: {
    'dot-product': new URL('/dist/compute/wasm/kernels.dot-product.wasm', location.href),
    relaxed: new URL('/dist/compute/wasm/kernels.relaxed.wasm', location.href),
    baseline: new URL('/dist/compute/wasm/kernels.baseline.wasm', location.href),
  },
  startCompute: () => new Worker('/dist/browser/compute.worker.js', { type: 'module' }),
})

async function open(kind: PageBackend, slots: number): Promise<{ backend: Backend; disk: SourceFaults }> {
  const packed = randomModel(faultShape)
  const disk = new SourceFaults()
  const model = { ...packed, experts: disk.wrapExperts(packed.experts) }
  const options = { precision: 'exact', expertsPerToken: faultShape.k } as const
  if (kind === 'tiers' && slots < faultShape.experts) {
    const gpuMemory = 2 * faultShape.k * slotLayout(packed.experts.layout).stride
    const tiers = { gpuMemory, expertMemory: slots * 4096, threads: 1, wasmHost }
    const way = (threads: number) =>
      ({ way: 'hybrid', threads, usesToPay: 4, prompts: { uploadFromTokens: 64 }, line: '' }) as const
    const how = { chunkTokens: 8, tuning: { AHEAD: 2, TRUST: 0 }, way }
    return { backend: await openWebgpuBackend(model, { ...options, ...tiers }, how), disk }
  }
  if (kind === 'webgpu' || kind === 'tiers') {
    const expertMemory = slots * (packed.experts.layout.expertSize + 64)
    return { backend: await openWebgpuBackend(model, { ...options, expertMemory }, { chunkTokens: 8 }), disk }
  }
  const more = { expertMemory: slots * 4096, threads: kind, wasmHost }
  return { backend: await openWasmBackend(model, { ...options, ...more }), disk }
}

window.walkFaults = async (kind, seed, steps, tolerance) => {
  const { backend, disk } = await open(kind, 6)
  const { backend: oracle } = await open(kind, 30)
  const report = await faultWalk({ backend, disk, oracle, seed, steps, tolerance })
  const { tiers } = backend.stats()
  if (kind === 'tiers' && !tiers?.computedOnCpu) throw new Error('no expert was computed by a worker')
  await Promise.all([backend.close(), oracle.close()])
  return report
}
