// Opens models on the wasm backend with its internal switches, and compares what backends computed, to the bit.
import type { Backend, LayerState, SequenceState } from '#moeflux/backends/backend.js'
import type { HostedOptions, WasmInternals } from '#moeflux/backends/wasm/platform.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import { demoModel } from '../models/models.js'
import { type Band, expectClose, expectSameBits } from '../ops/bands.js'

export interface OpenedWasm {
  readonly backend: Backend
  close(): Promise<void>
}

export async function openDemoOnWasm(
  options: Partial<HostedOptions> = {},
  internals: WasmInternals = {},
): Promise<OpenedWasm> {
  return await openOnWasm(demoModel, options, internals)
}

export async function openOnWasm(
  folder: string,
  options: Partial<HostedOptions> = {},
  internals: WasmInternals = {},
): Promise<OpenedWasm> {
  const packed = await openPacked(await openNodeFolder(folder, { links: 'any' }))
  const { expertsPerToken } = packed.config
  try {
    const backend = await openWasmBackend(
      packed,
      { precision: 'fast', expertsPerToken, threads: 2, ...options },
      internals,
    )
    return {
      backend,
      async close() {
        await backend.close()
        await packed.close()
      },
    }
  } catch (error) {
    await packed.close()
    throw error
  }
}

/** Evaluates tokens of one sequence in pieces of the given sizes (over and over); the last logits. */
export async function evaluate(
  backend: Backend,
  sequence: SequenceState,
  tokens: readonly number[],
  pieces: readonly number[] = [backend.chunkTokens],
): Promise<Float32Array> {
  let logits: Float32Array | null = null
  for (let at = 0, piece = 0; at < tokens.length; piece++) {
    const end = Math.min(tokens.length, at + pieces[piece % pieces.length])
    const run = { sequence, tokens: tokens.slice(at, end), phase: 'prompt', output: 'last' } as const
    logits = (await backend.step([run]))[0].logits
    at = end
  }
  return logits as Float32Array
}

export interface Snapshot {
  readonly length: number
  readonly logits: Float32Array
  readonly layers: readonly LayerState[]
}

export async function snapshot(backend: Backend, sequence: SequenceState, logits: Float32Array): Promise<Snapshot> {
  const layers: LayerState[] = []
  for (let layer = 0; layer < backend.config.numLayers; layer++) layers.push(await sequence.exportLayer(layer))
  return { length: sequence.length, logits, layers }
}

/** The state and last logits after a fresh evaluation in pieces. */
export async function fresh(
  backend: Backend,
  tokens: readonly number[],
  pieces?: readonly number[],
): Promise<Snapshot> {
  const sequence = backend.createSequence()
  const logits = await evaluate(backend, sequence, tokens, pieces)
  const result = await snapshot(backend, sequence, logits)
  sequence.release()
  return result
}

export function expectSameSnapshot(got: Snapshot, want: Snapshot): void {
  expectSameState(got, want)
}

/** `band`: how far values may be from each other; default not at all. */
export function expectSameState(got: Snapshot, want: Snapshot, band?: Band): void {
  const expectSame = (values: Float32Array, wanted: Float32Array, what: string) =>
    band === undefined ? expectSameBits(values, wanted, what) : expectClose(values, wanted, band, what)
  expectSame(got.logits, want.logits, 'logits')
  got.layers.forEach((layer, i) => {
    const other = want.layers[i]
    if (layer.kind === 'full_attention' && other.kind === 'full_attention') {
      expectSame(layer.keys, other.keys, `keys of layer ${i}`)
      expectSame(layer.values, other.values, `values of layer ${i}`)
    } else if (layer.kind === 'linear_attention' && other.kind === 'linear_attention') {
      expectSame(layer.conv, other.conv, `conv state of layer ${i}`)
      expectSame(layer.recurrent, other.recurrent, `recurrent state of layer ${i}`)
    } else throw new Error(`layer ${i} is ${layer.kind}, want ${other.kind}`)
  })
}
