// Every backend over a small model whose experts hardly fit, on a disk that fails as told: by reader threads that open
// real files, or by byte sources as in a tab.
import '../gpu/swiftShader.js'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Backend } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import type { HostedOptions, WasmInternals } from '#moeflux/backends/wasm/platform.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { openWebgpuBackend } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import { ReadFaults } from '#moeflux/experts/readers/readFaults.js'
import { openFileSource } from '#moeflux/files/fileSource.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { slotLayout } from '#moeflux/gpu/memory/slotLayout.js'
import { type RandomShape, randomModel } from '../models/randomModel.js'
import { hybridWay } from '../models/tieredBackend.js'
import { type Band, KERNEL } from '../ops/bands.js'
import { localHost } from '../wasm/wasmHosts.js'
import { type BadDisk, SourceFaults } from './badDisk.js'
import { faultShape } from './faultShape.js'

export interface FaultModel {
  readonly packed: PackedModel
  readonly files: readonly string[] // of experts, one per layer
  readonly contents: readonly Uint8Array[] // of those
  close(): Promise<void>
}

/** The model with its experts in real files. */
export async function faultModel(shape: RandomShape = faultShape): Promise<FaultModel> {
  const packed = randomModel(shape)
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-faults-'))
  const contents: Uint8Array[] = []
  const files: string[] = []
  for (const [layer, source] of packed.experts.files.entries()) {
    const bytes = new Uint8Array(source.size)
    await source.read(0, bytes)
    const file = join(folder, `layer_0${layer}.bin`)
    writeFileSync(file, bytes)
    contents.push(bytes)
    files.push(file)
  }
  const sources = await Promise.all(files.map(openFileSource))
  return {
    packed: { ...packed, experts: { ...packed.experts, files: sources } },
    files,
    contents,
    async close() {
      for (const source of sources) await source.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export interface FaultRow {
  readonly name: string
  readonly isGpu: boolean
  /** Tests that take every read in turn take every so many. */
  readonly stride: number
  /** Where an expert is computed depends on what was before, and so do the last bits. */
  readonly band?: Band
  /** Has more slots than it is opened with, and so nothing to read for a call that was there before. */
  readonly keepsMuch?: boolean
  /** With memory for so many experts. */
  open(
    packed: PackedModel,
    slots: number,
    options?: Partial<HostedOptions>,
  ): Promise<{ backend: Backend; disk: BadDisk }>
}

type Open = (packed: PackedModel, options: HostedOptions) => Promise<Backend>

function onThreads(
  name: string,
  isGpu: boolean,
  open: Open,
  more: Pick<FaultRow, 'band' | 'keepsMuch'> = {},
): FaultRow {
  return {
    name,
    isGpu,
    stride: 1,
    ...more,
    async open(packed, slots, options) {
      const disk = new ReadFaults()
      const given = { expertReads: 'buffered', readFaults: disk.buffer, ...options } as const
      return { backend: await open(packed, optionsFor(packed, slots, name, given)), disk }
    },
  }
}

function onSources(name: string, isGpu: boolean, open: Open): FaultRow {
  return {
    name,
    isGpu,
    stride: isGpu ? 3 : 1, // an emulated GPU is slow, and what differs here is no more than the reader
    async open(packed, slots, options) {
      const disk = new SourceFaults()
      const experts = disk.wrapExperts(packed.experts)
      return { backend: await open({ ...packed, experts }, optionsFor(packed, slots, name, options)), disk }
    },
  }
}

function optionsFor(packed: PackedModel, slots: number, name: string, options?: Partial<HostedOptions>) {
  const { expertSize } = packed.experts.layout
  // Slots in memory begin where direct reads may go.
  const slotBytes = /wasm|memory/.test(name) ? Math.ceil(expertSize / 4096) * 4096 : expertSize + 64
  const expertMemory = slots * slotBytes
  return { precision: 'exact', expertsPerToken: packed.config.expertsPerToken, expertMemory, ...options } as const
}

const wasm =
  (threads: number, internals: WasmInternals = {}): Open =>
  (packed, options) =>
    openWasmBackend(packed, { threads, ...options }, internals)
// Guesses that are always trusted, so that much is read ahead; and pools that soon have to grow.
const webgpu: Open = (packed, options) => {
  const planned = { tokens: 1, sequences: 1, isContext: false }
  // Some of a prompt's experts are brought where the others are computed in memory.
  const way = (threads: number) => ({ ...hybridWay(threads), prompts: { uploadFromTokens: 2 } })
  const how = { chunkTokens: 8, tuning: { AHEAD: 2, TRUST: 0 }, way }
  return openWebgpuBackend(packed, { planned, ...options }, how)
}

/** As few experts on the GPU as can be; the others are computed in memory, which has room for as many as the row is opened with. */
const hybrid: Open = (packed, options) =>
  webgpu(packed, {
    ...options,
    gpuMemory: 2 * options.expertsPerToken * slotLayout(packed.experts.layout).stride,
    threads: 1,
  })

export const faultRows: readonly FaultRow[] = [
  onSources('reference', false, openReferenceBackend),
  onThreads('wasm, 1 thread', false, wasm(1)),
  onThreads('wasm, 2 threads', false, wasm(2)),
  onThreads('wasm, 2 threads, baseline SIMD', false, wasm(2, { simd: 'baseline' })),
  onThreads('wasm, 3 threads', false, wasm(3)),
  onSources('wasm without threads', false, (packed, options) =>
    openWasmBackend(packed, { ...options, wasmHost: localHost }, { simd: 'baseline' }),
  ),
  onThreads('webgpu, files', true, webgpu),
  onSources('webgpu, byte sources', true, webgpu),
  onThreads('webgpu and memory', true, hybrid, { band: KERNEL, keepsMuch: true }),
]
