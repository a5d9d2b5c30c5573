// The page's side of the tab's test of positions: bundled, and run in the page. The same as in Node, with workers of the
// browser, and with files that are read on the page's event loop.

import { browserHost } from '#moeflux/apps/browser/browserPlatform.js'
import type { SimdLevel } from '#moeflux/backends/wasm/kernels.js'
import { openWasmBackend, type WasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { StepGate } from '#moeflux/backends/wasm/workers/stepGate.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { ByteSource, Folder } from '#moeflux/files/source.js'
import { evaluate, type GatedWasm, reachedOr, StepPositions } from './stepPositions.js'

const SMALLEST_CACHE = 4 * 16_384 // as in Node

/** Whole files of a server, in memory; those of experts fail when told. */
class FetchedFolder implements Folder {
  readonly location = '/model/'
  fails = false

  async readText(name: string): Promise<string | null> {
    const response = await fetch(this.location + name)
    return response.ok ? await response.text() : null
  }

  async open(name: string): Promise<ByteSource> {
    const bytes = new Uint8Array(await (await fetch(this.location + name)).arrayBuffer())
    return {
      name,
      size: bytes.length,
      close: async () => {},
      read: async (offset, target) => {
        if (this.fails && name.includes('experts')) throw Object.assign(new Error('EIO'), { code: 'EIO' })
        target.set(bytes.subarray(offset, offset + target.length))
      },
    }
  }
}

async function openInTab(threads: number, simd: SimdLevel): Promise<GatedWasm> {
  const folder = new FetchedFolder()
  const gate = new StepGate()
  const kernelUrl = (name: SimdLevel) => new URL(`/dist/backends/wasm/kernels.${name}.wasm`, location.href)
  const wasmHost = browserHost({
    kernels: {
      'dot-product': kernelUrl('dot-product'),
      relaxed: kernelUrl('relaxed'),
      baseline: kernelUrl('baseline'),
    },
    startCompute: () => new Worker('/dist/apps/browser/compute.worker.js', { type: 'module' }),
  })
  const packed = await openPacked(folder)
  const { expertsPerToken } = packed.config
  const options = { precision: 'fast', expertsPerToken, threads, expertMemory: SMALLEST_CACHE, wasmHost } as const
  const backend = (await openWasmBackend(packed, options, { simd, gate: gate.buffer })) as WasmBackend
  const failReads = (on: boolean) => {
    folder.fails = on
  }
  return { backend, gate, threads, failReads, close: () => backend.close() }
}

/** Some places of every worker; what happened there. Throws where anything is wrong. */
async function trySome(threads: number, simd: SimdLevel, stride: number) {
  const opened = await openInTab(threads, simd)
  const positions = await StepPositions.on(opened, stride)
  let aborted = 0
  for (let worker = 0; worker < threads; worker++) aborted += (await positions.abortEverywhere(worker)).aborted
  const { failed } = await positions.failReads('meet')
  await opened.close()
  return { description: opened.backend.description, aborted, failed }
}

/** A worker that fails in the middle of a step: the codes of that step and of the next one, and what the backend says. */
async function loseWorker(threads: number, worker: number, place: number) {
  const opened = await openInTab(threads, 'relaxed')
  const sequence = opened.backend.createSequence()
  const codeOf = (error: unknown) => (error as { code?: string }).code
  opened.gate.arm(worker, place, 'throw')
  const running = evaluate(opened, sequence).then(() => 'done', codeOf)
  await reachedOr(opened, running)
  const codes = [await running, await evaluate(opened, sequence).then(() => 'done', codeOf)]
  await opened.close()
  return { codes, failure: opened.backend.failure?.message }
}

Object.assign(globalThis, { positions: { trySome, loseWorker } })
export type TabPositions = { readonly trySome: typeof trySome; readonly loseWorker: typeof loseWorker }
