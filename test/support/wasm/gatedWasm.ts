// Models on the wasm backend in Node, with a gate in its workers and a disk that fails when told.
import { SLOT_ALIGN } from '#moeflux/backends/wasm/memory/bankLayout.js'
import type { HostedOptions, WasmHost, WasmInternals } from '#moeflux/backends/wasm/platform.js'
import { openWasmBackend, type WasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { StepGate } from '#moeflux/backends/wasm/workers/stepGate.js'
import { ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import type { GatedWasm } from './stepPositions.js'
import { type OpenedWasm, openOnWasm } from './wasmModels.js'

export const SMALLEST_CACHE = 4 * 16_384 // four experts: what a layer of a prompt wants comes in several waves

type Gated = GatedWasm & { readonly faults: ReadFaults }

/** The model of two layers. */
export function openGated(
  folder: string,
  threads: number,
  internals: WasmInternals,
  wasmHost?: WasmHost,
  drafts = false,
): Promise<Gated> {
  return withGate(threads, (options, gate) =>
    openOnWasm(folder, { ...options, wasmHost, drafts }, { ...internals, ...gate }),
  )
}

/** A model that has its experts in files, and memory for as few of them as can be; it stays the caller's. */
export function openGatedModel(packed: PackedModel, threads: number): Promise<Gated> {
  return withGate(threads, async (options, gate) => {
    const { expertsPerToken } = packed.config
    const slotBytes = Math.ceil(packed.experts.layout.expertSize / SLOT_ALIGN) * SLOT_ALIGN
    const own = { precision: 'fast', expertsPerToken, expertMemory: 2 * expertsPerToken * slotBytes } as const
    const backend = await openWasmBackend(packed, { ...options, ...own }, gate)
    return { backend, close: () => backend.close() }
  })
}

async function withGate(
  threads: number,
  open: (options: Partial<HostedOptions>, internals: WasmInternals) => Promise<OpenedWasm>,
): Promise<Gated> {
  const gate = new StepGate()
  const faults = new ReadFaults()
  const options = { threads, expertMemory: SMALLEST_CACHE, readFaults: faults.buffer }
  const { backend, close } = await open(options, { gate: gate.buffer })
  return {
    backend: backend as WasmBackend,
    gate,
    threads,
    faults,
    failReads: on => faults.set(on ? 'end' : 'none'),
    close,
  }
}
