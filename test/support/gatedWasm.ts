// A wasm backend whose workers a test stops at places of their protocol, by count and not by time, and what is done there.
import { nextTurn } from '#moeflux/compute/breather.js'
import type { WasmHost } from '#moeflux/compute/wasm/host.js'
import { StepGate } from '#moeflux/compute/wasm/stepGate.js'
import type { TeamGovernor } from '#moeflux/compute/wasm/teamGovernor.js'
import type { WasmBackend, WasmInternals } from '#moeflux/compute/wasm/wasmBackend.js'
import { ReadFaults } from '#moeflux/experts/readFaults.js'
import { readState } from '#moeflux/experts/readRing.js'
import { type OpenedWasm, openOnWasm } from './wasmModels.js'

export interface GatedWasm extends OpenedWasm {
  readonly backend: WasmBackend
  readonly gate: StepGate
  readonly faults: ReadFaults
  /** Workers that small steps run on from now on. */
  setWorkers(count: number): void
}

const SMALLEST_CACHE = 4 * 16_384 // four experts: what a layer of a prompt wants comes in several waves

/** The model of two layers. */
export async function openGated(
  folder: string,
  threads: number,
  internals: WasmInternals,
  wasmHost?: WasmHost,
): Promise<GatedWasm> {
  const gate = new StepGate()
  const faults = new ReadFaults()
  const options = { threads, expertMemory: SMALLEST_CACHE, readFaults: faults.buffer, wasmHost }
  const opened = await openOnWasm(folder, options, { ...internals, gate: gate.buffer })
  const backend = opened.backend as WasmBackend
  return {
    ...opened,
    backend,
    gate,
    faults,
    setWorkers(count) {
      Object.assign(backend, { governor: { size: count, stepDone() {} } satisfies Partial<TeamGovernor> })
    },
  }
}

/** Resolves when `work` is over, or when a worker stands at the gate: whether it does. */
export async function reachedOr({ gate }: GatedWasm, work: Promise<unknown>): Promise<boolean> {
  await Promise.race([gate.reached(), work.catch(() => {})])
  return gate.isReached
}

/** Until no read is among its retries. */
export async function readsOver({ backend }: GatedWasm): Promise<void> {
  const { ring } = backend.runtime
  const isReading = () => Array.from({ length: ring.entries }, (_, i) => ring.state(i)).includes(readState.reading)
  while (isReading()) await nextTurn()
}

const PATIENCE_TURNS = 300

/** While one worker is held: until all others of a job wait for it, or have left it, or `work` is over. */
export async function othersWait({ backend }: GatedWasm, workers: number, work: Promise<unknown>): Promise<void> {
  const { board } = backend.runtime
  let isOver = false
  const over = () => {
    isOver = true
  }
  work.then(over, over)
  for (let turn = 0; turn < PATIENCE_TURNS && !isOver; turn++) {
    if (board.words.load(board.teamBase) >= workers - 1) return
    await nextTurn()
  }
}
