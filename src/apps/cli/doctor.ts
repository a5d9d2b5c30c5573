// What `moeflux doctor` does: looks, measures the disk at the size of an expert, and says what follows from it.
import { stat } from 'node:fs/promises'
import { availableParallelism, cpus, release, totalmem } from 'node:os'
import { GPU_WEIGHTS, PLANNED_TOKENS, READ_SPEED, WEIGHTS_PER_THREAD } from '../../base/defaults.js'
import { messageOf } from '../../base/errors.js'
import { readRegular } from '../../base/regularFile.js'
import type { ModelConfig } from '../../index.js'
import {
  type AdapterProbe,
  availableMemory,
  chooseReadMode,
  type DiskMeasurement,
  expertCount,
  findWellKnown,
  fourBitBytes,
  freeSpace,
  gpuDevices,
  hasRelaxedSimd,
  loadKernels,
  locateModel,
  locateNamed,
  measureDisk,
  measureScratchDisk,
  notFound,
  openNodeFolder,
  openPacked,
  presets,
  SUGGESTED_MODEL,
  storedBytes,
  storeRoot,
  type WellKnownModel,
} from '../../internal.js'
import type { Cli } from './action.js'
import { askForAdapter } from './adapterHere.js'
import { diskLine, formatBytes, formatFields, wrapWords } from './format.js'
import { gpuCure } from './gpuCure.js'
import { estimateGpu, type GpuEstimate } from './gpuEstimate.js'
import { gpuFields as splitFields } from './modelReport.js'

export interface DoctorCommandOptions {
  readonly model?: string
  readonly disk: boolean
  readonly gpu?: number
  readonly json?: boolean
}

const MEASURED_MODEL = 'qwen3.6-35b' // its experts are of a common size
const TROUBLESHOOTING = 'https://github.com/moeflux/moeflux/blob/main/docs/troubleshooting.md'

const DEPTHS = [1, 4, 8]
const MEASURED_MODEL_BYTES = 1e9 // a smaller model would be read from some cache, whoever keeps it

interface Subject {
  readonly name: string
  readonly expertBytes: number
  readonly expertsBytes: number
  readonly residentBytes: number
  readonly expertsPerStep: number // experts that a token reads at most, over all layers
  readonly embeddingBytes: number // of the resident part, of which a token reads one row
  readonly config: ModelConfig
  readonly files: readonly string[] // empty: a preset
}

export interface Findings {
  readonly system: { platform: string; node: string; runtime: string; processor: string; threads: number }
  readonly wasm: { simd: 'dot-product' | 'relaxed' | 'baseline' | 'none'; sharedMemory: boolean; reason: string | null }
  readonly gpu: AdapterProbe
  readonly memory: { total: number; free: number; limit: number; limitedBy: 'machine' | 'cgroup' }
  readonly disk: DiskMeasurement | null
  readonly store: { folder: string; free: number | null } // where models are kept
  readonly next: string // command, for who has nothing else in mind
  readonly subject: Omit<Subject, 'files' | 'config'>
  readonly split: GpuEstimate | null // with a GPU of the size that was asked about
  readonly auto: { backend: string; reason: string; reads: 'direct' | 'buffered'; readsReason: string }
  readonly advice: readonly string[]
}

export async function examine(cli: Cli, options: DoctorCommandOptions): Promise<void> {
  const subject = await (options.model === undefined ? usualSubject() : subjectNamed(options.model))
  const memory = availableMemory()
  const wasm = await lookAtWasm()
  const gpu = await askForAdapter(cli.signal)
  const disk = options.disk ? await lookAtDisk(subject, cli) : null
  const reads = chooseReadMode({
    wanted: 'auto',
    expertSize: subject.expertBytes,
    expertBytes: subject.expertsBytes,
    freeBytes: Math.max(0, memory.bytes - subject.residentBytes),
    supported: process.platform === 'linux',
  })
  const { files: _files, config: _config, ...about } = subject
  const findings: Omit<Findings, 'advice'> = {
    system: {
      platform: `${process.platform} ${release()}, ${process.arch}`,
      node: process.version,
      runtime: runtimeName(),
      processor: cpus()[0]?.model.trim() ?? 'unknown',
      threads: availableParallelism(),
    },
    wasm,
    gpu,
    memory: { total: totalmem(), free: memory.bytes, limit: memory.limit, limitedBy: memory.limitedBy },
    disk,
    store: { folder: storeRoot(), free: await freeSpace(storeRoot()) },
    next: await nextCommand(options.model),
    subject: about,
    split: options.gpu === undefined ? null : splitFor(subject, options.gpu, disk),
    auto: {
      ...chooseForAuto(gpu, wasm),
      reads: reads.direct ? 'direct' : 'buffered',
      readsReason: reads.reason,
    },
  }
  const complete: Findings = { ...findings, advice: [...adviceFor(findings), ...(await gpuAdvice(gpu))] }
  if (options.json) await cli.printJson(complete)
  else await cli.print(formatFindings(complete, cli.width))
}

function runtimeName(): string {
  const { deno, bun } = process.versions
  if (deno !== undefined) return `Deno ${deno}`
  return bun === undefined ? `Node ${process.version}` : `Bun ${bun}`
}

async function subjectNamed(name: string): Promise<Subject> {
  const located = await locateModel(name)
  if (located.path !== null) return await modelSubject(located.path)
  if (located.known !== null) return knownSubject(located.known)
  throw notFound(name, located)
}

/** Where no model is named, the store may hold anything, also what cannot be opened. */
async function usualSubject(): Promise<Subject> {
  const located = await locateNamed(MEASURED_MODEL).catch(() => null)
  const stored = located === null || located.path === null ? null : await modelSubject(located.path).catch(() => null)
  return stored ?? knownSubject(findWellKnown(MEASURED_MODEL) as WellKnownModel)
}

/** The model that was named; else the usual one if it is in the store, or a small one. */
async function nextCommand(model: string | undefined): Promise<string> {
  const names = model === undefined ? [MEASURED_MODEL, SUGGESTED_MODEL] : [model]
  const places = await Promise.all(
    names.map(async name => ({ name, located: await locateModel(name).catch(() => null) })),
  )
  const { name, located } = places.find(place => place.located?.path) ?? places[places.length - 1]
  const command = `moeflux run -m ${name} "Hello"`
  if (located === null || located.path === null) return `${command}, which offers to download it`
  return located.stored === null ? command : `${command}: ${located.stored.name} is in the store`
}

function knownSubject({ preset, title }: WellKnownModel): Subject {
  const { config } = presets[preset]
  const { expert, allExperts, resident, embedding } = fourBitBytes(config)
  return {
    name: title,
    expertBytes: expert,
    expertsBytes: allExperts,
    residentBytes: resident,
    expertsPerStep: config.moeLayers.length * config.expertsPerToken,
    embeddingBytes: embedding,
    config,
    files: [],
  }
}

async function modelSubject(path: string): Promise<Subject> {
  const packed = await openPacked(await openNodeFolder(path, { links: 'any' }))
  const { config, experts, weights, tensors } = packed
  const files = experts.files.map(file => file.name)
  await packed.close()
  return {
    name: packed.name,
    expertBytes: experts.layout.expertSize,
    expertsBytes: expertCount(config) * experts.layout.expertSize,
    residentBytes: weights.size,
    expertsPerStep: config.moeLayers.length * config.expertsPerToken,
    embeddingBytes: config.tieWordEmbeddings ? 0 : storedBytes(tensors.embed),
    config,
    files,
  }
}

/** Where experts would go with a GPU of this size, and how fast that may be on this machine. */
function splitFor(subject: Subject, gpuBytes: number, disk: DiskMeasurement | null): GpuEstimate {
  const { config, expertBytes: expert, expertsBytes: allExperts } = subject
  const bytes = { expert, allExperts, resident: subject.residentBytes, embedding: subject.embeddingBytes }
  const cores = availableParallelism()
  const machine = {
    gpuBytes,
    memory: availableMemory(),
    cores,
    gpuWeightsPerSecond: GPU_WEIGHTS,
    weightsPerSecond: WEIGHTS_PER_THREAD * cores,
    readsPerSecond: disk?.speeds.at(-1)?.bytesPerSecond ?? READ_SPEED,
  }
  const tokens = Math.min(PLANNED_TOKENS, config.maxPositionEmbeddings)
  return estimateGpu(config, bytes, machine, { tokens, sequences: 1, isContext: true })
}

async function lookAtWasm(): Promise<Findings['wasm']> {
  const sharedMemory = typeof SharedArrayBuffer !== 'undefined'
  try {
    const { simd } = await loadKernels()
    return { simd, sharedMemory, reason: null }
  } catch (error) {
    return { simd: hasRelaxedSimd() ? 'relaxed' : 'none', sharedMemory, reason: messageOf(error) }
  }
}

/** Of a model without experts, which reads nothing while it runs. */
const USUAL_READ_BYTES = 1 << 20

async function lookAtDisk(subject: Subject, cli: Cli): Promise<DiskMeasurement> {
  const { files, expertBytes: readBytes, expertsBytes } = subject
  if (files.length > 0 && expertsBytes >= MEASURED_MODEL_BYTES) {
    const fileSize = (await stat(files[0])).size
    return measureDisk({ files, fileSize, readBytes, depths: DEPTHS, seconds: 1, signal: cli.signal })
  }
  return measureScratchDisk(storeRoot(), readBytes || USUAL_READ_BYTES, DEPTHS, cli.signal)
}

function chooseForAuto(gpu: Findings['gpu'], wasm: Findings['wasm']): { backend: string; reason: string } {
  if (gpu.usable) return { backend: 'webgpu', reason: gpu.reason }
  if (wasm.reason === null)
    return { backend: 'wasm', reason: `WASM with ${wasm.simd} SIMD runs here; no GPU: ${gpu.reason}` }
  return { backend: 'reference', reason: `WASM cannot run: ${wasm.reason}` }
}

function adviceFor({ memory, disk, subject, system }: Omit<Findings, 'advice'>): string[] {
  const advice: string[] = []
  const room = memory.free - subject.residentBytes
  const read = subject.expertsPerStep * subject.expertBytes
  const raw = disk?.speeds.at(-1)?.bytesPerSecond
  if (room < 0) {
    advice.push(
      `${subject.name}: its resident part of ${formatBytes(subject.residentBytes)} does not fit the free memory`,
    )
  } else if (room >= subject.expertsBytes) {
    advice.push(`${subject.name} fits in memory: experts are read once, then computed from memory`)
  } else if (raw !== undefined) {
    const share = room / subject.expertsBytes
    const worst = (read * (1 - share)) / raw
    advice.push(
      `${subject.name}: ${Math.round(share * 100)}% of its experts fit in memory; a token reads up to ` +
        `${formatBytes(read * (1 - share))}, ${Math.round(worst * 1000)} ms of this disk, and less with real text`,
    )
  }
  if (raw !== undefined && raw < 1e9) {
    advice.push(`the disk reads ${formatBytes(raw)} per second: keep models that stream on the fastest disk you have`)
  }
  if (Number.parseInt(system.node.slice(1), 10) < 24) {
    advice.push('Node 24 or newer is up to a sixth faster (dot products of AVX-VNNI and ARM)')
  }
  if (memory.limitedBy === 'cgroup') {
    advice.push(`a control group limits this process to ${formatBytes(memory.limit)} of memory, page cache included`)
  }
  if (system.threads === 1) advice.push('one processor thread: reading and computing will take turns')
  return advice
}

async function gpuAdvice({ usable, reason }: AdapterProbe): Promise<string[]> {
  if (usable) return []
  const release = await readRegular('/etc/os-release').then(String, () => '')
  const ids = [...release.matchAll(/^ID(?:_LIKE)?="?([^"\n]*)/gm)].map(([, id]) => id)
  const hasDawn = !reason.includes("package 'webgpu'")
  return [gpuCure({ platform: process.platform, distribution: ids.join(' '), devices: await gpuDevices(), hasDawn })]
}

/** The adapter that WebGPU found: what it is, what it can do that the kernels use, and its limits. */
function gpuFields({ adapter, reason, said }: Findings['gpu']): [string, string][] {
  const complaints = said.split('\n').filter(line => line !== '' && !/^\s/.test(line)) // without places in Dawn's sources
  const words: [string, string][] =
    complaints.length === 0
      ? []
      : [['gpu: drivers say', complaints.map(line => line.replace(/^(warning|error): /i, '')).join('; ')]]
  if (adapter === null) return [['gpu', `none: ${reason}`], ...words]
  const { name, vendor, architecture, driver, software, subgroupSizes, packedDot, features, limits } = adapter
  const about = [vendor, architecture, driver].filter(text => text !== '').join(', ')
  const sizes = subgroupSizes === null ? 'no subgroups' : `subgroups of ${[...new Set(subgroupSizes)].join(' to ')}`
  const buffers = `buffers of ${formatBytes(limits.maxBufferSize)}, bindings of ${formatBytes(limits.maxStorageBufferBindingSize)}`
  return [
    ['gpu', `${name} (${about})${software ? ', a software adapter' : ''}`],
    ['gpu: abilities', `${sizes}, ${packedDot ? 'packed' : 'no packed'} int8 products, ${buffers}`],
    ['gpu: features', features.join(', ')],
    ...words,
  ]
}

function formatFindings(findings: Findings, width: number): string {
  const { system, wasm, gpu, memory, disk, store, subject, split, auto, advice } = findings
  const simd = wasm.reason === null ? `${wasm.simd} SIMD, shared memory` : `not usable: ${wasm.reason}`
  const limit = memory.limitedBy === 'cgroup' ? `, limited to ${formatBytes(memory.limit)} by a control group` : ''
  const fields: [string, string][] = [
    ['system', `${system.platform}; ${system.runtime}`],
    ['processor', `${system.processor}, ${system.threads} threads`],
    ['wasm', simd],
    ...gpuFields(gpu),
    ['memory', `${formatBytes(memory.free)} free of ${formatBytes(memory.total)}${limit}`],
  ]
  if (disk) fields.push(['disk', diskLine(disk)])
  if (store.free !== null) fields.push(['disk: free', `${formatBytes(store.free)} for models, in ${store.folder}`])
  fields.push(
    ['auto: backend', `${auto.backend}: ${auto.reason}`],
    ['auto: reads', `${auto.reads} for ${subject.name}: ${auto.readsReason}`],
  )
  if (split) {
    const { gpuBytes } = split
    fields.push(['split', `${subject.name} with ${formatBytes(gpuBytes)} of GPU memory:`], ...splitFields(split))
  }
  const notes = [...advice, `next: ${findings.next}`, `if something is wrong: ${TROUBLESHOOTING}`]
    .flatMap(line => wrapWords(line, width - 2).map((part, i) => `${i === 0 ? '- ' : '  '}${part}\n`))
    .join('')
  return `${formatFields(fields, width)}\n${notes}`
}
