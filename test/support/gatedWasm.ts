// The model of two layers on the wasm backend in Node, with a gate in its workers and a disk that fails when told.
import type { WasmHost } from '#moeflux/compute/wasm/host.js'
import { StepGate } from '#moeflux/compute/wasm/stepGate.js'
import type { WasmBackend, WasmInternals } from '#moeflux/compute/wasm/wasmBackend.js'
import { ReadFaults } from '#moeflux/experts/readFaults.js'
import type { GatedWasm } from './stepPositions.js'
import { openOnWasm } from './wasmModels.js'

export const SMALLEST_CACHE = 4 * 16_384 // four experts: what a layer of a prompt wants comes in several waves

export async function openGated(
  folder: string,
  threads: number,
  internals: WasmInternals,
  wasmHost?: WasmHost,
): Promise<GatedWasm & { readonly faults: ReadFaults }> {
  const gate = new StepGate()
  const faults = new ReadFaults()
  const options = { threads, expertMemory: SMALLEST_CACHE, readFaults: faults.buffer, wasmHost }
  const { backend, close } = await openOnWasm(folder, options, { ...internals, gate: gate.buffer })
  return {
    backend: backend as WasmBackend,
    gate,
    threads,
    faults,
    failReads: on => faults.set(on ? 'end' : 'none'),
    close,
  }
}
