// What the fault tests run inside a page: backends over byte sources that fail as told.

import { browserHost } from '#moeflux/apps/browser/browserPlatform.js'
import type { Backend } from '#moeflux/backends/backend.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { openWebgpuBackend } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import { slotLayout } from '#moeflux/gpu/memory/slotLayout.js'
import { randomModel } from '../models/randomModel.js'
import { SourceFaults } from './badDisk.js'
import { faultShape } from './faultShape.js'
import { type FaultWalkReport, faultWalk } from './faultWalk.js'

/** With so many threads on wasm; 'tiers': some experts on the GPU, others in memory, computed by a worker. */
export type PageBackend = 'webgpu' | 'tiers' | 1 | 2 | 3

declare global {
  interface Window {
    walkFaults(kind: PageBackend, seed: number, steps: number, tolerance: number): Promise<FaultWalkReport>
  }
}

const wasmHost = browserHost({
  kernels: {
    'dot-product': new URL('/dist/backends/wasm/kernels.dot-product.wasm', location.href),
    relaxed: new URL('/dist/backends/wasm/kernels.relaxed.wasm', location.href),
    baseline: new URL('/dist/backends/wasm/kernels.baseline.wasm', location.href),
  },
  startCompute: () => new Worker('/dist/apps/browser/compute.worker.js', { type: 'module' }),
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
