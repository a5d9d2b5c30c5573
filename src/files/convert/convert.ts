// Turns a downloaded model (MLX or Hugging Face, safetensors, or GGUF) into a packed folder. Streams: memory stays at a few
// blocks and one expert, whatever the model's size. Each file is finished before the next is begun, so that a run that
// was stopped goes on where it was; the same source and options always give the same bytes.
import { basename, dirname, join } from 'node:path'
import {
  DiskFullError,
  FormatError,
  ModelNotFoundError,
  TargetError,
  TensorError,
  UnsupportedModelError,
} from '../../base/errors.js'
import { parseConfig } from '../../model/config.js'
import { PROJECTIONS } from '../../model/expertLayout.js'
import { isDiskFull } from '../diskFull.js'
import {
  type BlockShape,
  BlockSummer,
  blocksPerRecord,
  expertBlockBytes,
  formatChecksums,
  WEIGHTS_BLOCK_BYTES,
} from '../packed/blockChecksums.js'
import { type FileChecksum, formatManifest, formatMetadata, type Metadata, parseMetadata } from '../packed/manifest.js'
import { readJson } from '../packed/openPacked.js'
import {
  CONFIG_NAME,
  COPIED_NAMES,
  expertChecksumsName,
  expertFileName,
  GENERATION_CONFIG_NAME,
  JOURNAL_NAME,
  MANIFEST_NAME,
  METADATA_NAME,
  WEIGHTS_CHECKSUMS_NAME,
  WEIGHTS_NAME,
} from '../packed/packedNames.js'
import type { Folder } from '../source.js'
import { ConversionJournal, type FinishedFile } from './conversionJournal.js'
import { changedTexts } from './copiedTexts.js'
import type { OutputFile, OutputFolder } from './outputFolder.js'
import { type PackingOptions, type PackingPlan, plannedBytes, planPacking } from './packingPlan.js'
import { PackScratch } from './packMatrix.js'
import { openShardedModel } from './shardedModel.js'
import { sourceIdentity } from './sourceIdentity.js'
import { SourceModel } from './sourceModel.js'
import { type WriteContext, writeExperts, writeResident } from './writePacked.js'

/** Part of the keys of journals and of the cache: raised whenever the same options would give other bytes. */
export const CONVERTER_VERSION = 1
/** The same for what GGUF files become, in journals: of the cache their identity has it. */
const GGUF_VERSION = 2

export interface ConvertOptions extends PackingOptions {
  /** The model's name; default the source folder's. */
  readonly name?: string
  /** What the source is, where that is known without looking at samples of it. */
  readonly identity?: string
  readonly onProgress?: (progress: { phase: string; loaded: number; total: number }) => void
  readonly onNotice?: (line: string) => void
  readonly signal?: AbortSignal
}

export interface ConvertResult {
  readonly metadata: Metadata
  readonly bytes: number // of all weights
  readonly bytesReused: number // that an earlier run had finished
}

export async function convert(
  source: Folder,
  output: OutputFolder,
  options: ConvertOptions = {},
): Promise<ConvertResult> {
  const configJson = await readJson(source, CONFIG_NAME)
  if (configJson === null) throw new ModelNotFoundError(source.location, `holds no ${CONFIG_NAME}`)
  const config = parseConfig(configJson, await readJson(source, GENERATION_CONFIG_NAME))
  const sharded = await openShardedModel(source)
  try {
    const model = new SourceModel(sharded, config)
    const plan = planPacking(model, options)
    return await new Conversion(source, output, model, plan, configJson, options).run()
  } finally {
    await sharded.close()
  }
}

type JsonConfig = Readonly<Record<string, unknown>>

class Conversion {
  private readonly total: number
  private loaded = 0

  constructor(
    private readonly source: Folder,
    private readonly output: OutputFolder,
    private readonly model: SourceModel,
    private readonly plan: PackingPlan,
    private readonly configJson: JsonConfig,
    private readonly options: ConvertOptions,
  ) {
    this.total = plannedBytes(model.config, plan)
  }

  async run(): Promise<ConvertResult> {
    const identity = this.options.identity ?? (await sourceIdentity(this.model.sharded))
    const names = await this.output.names()
    const finished = await this.output.readText(METADATA_NAME)
    const about = this.describe(identity)
    if (finished !== null) return this.alreadyThere(parseMetadata(finished, this.output.location), about)
    if (names.length > 0 && !names.includes(JOURNAL_NAME)) {
      throw new TargetError(this.output.location, 'is not empty, and what it holds is not an unfinished conversion')
    }
    const version = this.model.layout === 'gguf' ? GGUF_VERSION : CONVERTER_VERSION
    const head = this.model.config.draftHead === null ? [] : ['draft head'] // journals are older than heads are packed
    const key = JSON.stringify([version, about.source.identity, about.options, ...head])
    const journal = await ConversionJournal.open(this.output, key, names)
    const jobs = this.jobs()
    const texts = await this.texts(about.model)
    const bytesReused = jobs.reduce((sum, job) => sum + (finishedBy(journal, job) ? sizeOf(job) : 0), 0)
    const free = (await this.output.freeBytes()) + journal.uselessBytes
    const needed = this.total - bytesReused
    if (free < needed) throw new DiskFullError(this.output.location, needed, free)
    if (bytesReused > 0) {
      const share = Math.floor((bytesReused / this.total) * 100)
      this.options.onNotice?.(`resuming the conversion in ${this.output.location}: ${share}% was done`)
    }
    try {
      const metadata = await this.writeAll(jobs, texts, journal, about)
      return { metadata, bytes: this.total, bytesReused }
    } catch (error) {
      // What the source holds cannot be packed, now or later; else what is done is there for the next run.
      if (isRefusal(error) || journal.isEmpty) await journal.discard().catch(() => {})
      throw error
    }
  }

  private jobs(): LargeJob[] {
    const groups = this.largeFiles()
    const jobs: LargeJob[] = this.layersByShard().flatMap(layer =>
      this.plan.expertSets.map((set, i) => ({
        name: expertFileName(set.name, layer),
        shape: groups[i].shape,
        write: (context: WriteContext) => writeExperts(this.model, layer, set, context),
      })),
    )
    jobs.push({
      name: WEIGHTS_NAME,
      shape: groups[groups.length - 1].shape,
      write: context => writeResident(this.model, this.plan, context),
    })
    return jobs
  }

  private async writeAll(
    jobs: readonly LargeJob[],
    texts: ReadonlyMap<string, string>,
    journal: ConversionJournal,
    about: Pick<Metadata, 'model' | 'source' | 'options'>,
  ): Promise<Metadata> {
    await this.naming(JOURNAL_NAME, () => journal.start())
    const scratch = new PackScratch()
    const files = new Map<string, FileChecksum>()
    const finished = new Map<string, FinishedFile>()
    for (const job of jobs) {
      const done = finishedBy(journal, job)
      if (done !== undefined) this.advance(sizeOf(job))
      const file = done ?? (await this.writeLarge(job, scratch))
      if (done === undefined) await this.naming(JOURNAL_NAME, () => journal.add(job.name, file))
      finished.set(job.name, file)
      files.set(job.name, { size: file.size, sha256: file.sha256 })
    }
    for (const { checksums, names, shape } of this.largeFiles()) {
      const sums = BigUint64Array.from(names.flatMap(name => [...finished.get(name)!.sums]))
      const bytes = formatChecksums({ ...shape, sums })
      files.set(checksums, await this.writeFile({ name: checksums, write: ({ file }) => file.append(bytes) }, scratch))
    }
    for (const [name, text] of texts) files.set(name, await this.writeFile(textJob(name, text), scratch))
    const experts = new Map(this.plan.expertSets.map(set => [set.name, set.tables]))
    const metadata: Metadata = { ...about, files, experts }
    await this.writeFile(textJob(METADATA_NAME, formatMetadata(metadata)), scratch)
    await journal.close()
    return metadata
  }

  /** A disk that is full where nobody expected it: says at which file, and what is missing. */
  private async naming<T>(name: string, write: () => Promise<T>): Promise<T> {
    try {
      return await write()
    } catch (error) {
      if (!isDiskFull(error)) throw error
      const path = join(this.output.location, name)
      throw new DiskFullError(path, this.total - this.loaded, await this.output.freeBytes(), { cause: error })
    }
  }

  /** Which large files there will be, in the order of their checksums: those of each set of experts, then the weights. */
  private largeFiles(): LargeFiles[] {
    const { expertLayers, numExperts } = this.model.config
    const experts = this.plan.expertSets.map(({ name, expertSize: recordBytes }) => ({
      names: expertLayers.map(layer => expertFileName(name, layer)),
      checksums: expertChecksumsName(name),
      shape: {
        files: expertLayers.length,
        records: numExperts,
        recordBytes,
        blockBytes: expertBlockBytes(recordBytes),
      },
    }))
    const { residentBytes: recordBytes } = this.plan
    const blockBytes = Math.min(WEIGHTS_BLOCK_BYTES, recordBytes)
    const shape = { files: 1, records: 1, recordBytes, blockBytes }
    return [...experts, { names: [WEIGHTS_NAME], checksums: WEIGHTS_CHECKSUMS_NAME, shape }]
  }

  /** Layers in the order in which the shards hold them, so that each shard is read once and in one go. */
  private layersByShard(): number[] {
    const { model } = this
    const order = new Map([...model.sharded.shards.values()].map((shard, index) => [shard, index]))
    const first = (layer: number) => {
      const places = PROJECTIONS.map(projection => order.get(model.expert(layer, 0, projection).weight.source) ?? 0)
      return Math.min(...places)
    }
    const layers = model.config.expertLayers.map(layer => ({ layer, shard: first(layer) }))
    return layers.sort((a, b) => a.shard - b.shard || a.layer - b.layer).map(({ layer }) => layer)
  }

  private async writeLarge({ name, shape, write }: LargeJob, scratch: PackScratch): Promise<FinishedFile> {
    const summer = new BlockSummer(shape)
    const summed = (file: OutputFile): OutputFile => ({
      append(bytes) {
        summer.push(bytes)
        return file.append(bytes)
      },
      finish: () => file.finish(),
      discard: () => file.discard(),
    })
    const job: Job = { name, write: context => write({ ...context, file: summed(context.file) }) }
    return { ...(await this.writeFile(job, scratch)), sums: summer.finish() }
  }

  private async writeFile(job: Job, scratch: PackScratch): Promise<FileChecksum> {
    const { signal } = this.options
    signal?.throwIfAborted()
    return await this.naming(job.name, async () => {
      const file = await this.output.create(job.name)
      try {
        const advance = (bytes: number) => this.advance(bytes)
        await job.write({ file, scratch, signal, advance })
        return await file.finish()
      } catch (error) {
        await file.discard()
        throw error
      }
    })
  }

  private advance(bytes: number): void {
    this.loaded += bytes
    this.options.onProgress?.({ phase: 'convert', loaded: this.loaded, total: this.total })
  }

  /** The same model is there already: at most its small files are copied again. Another one is never written over. */
  private async alreadyThere(metadata: Metadata, about: Pick<Metadata, 'source' | 'options'>): Promise<ConvertResult> {
    const same =
      metadata.source.identity === about.source.identity &&
      JSON.stringify(metadata.options) === JSON.stringify(about.options)
    if (!same) {
      throw new TargetError(this.output.location, `holds another packed model already (${metadata.model})`)
    }
    // An identity that was given stands for the whole source; one made here leaves the small files out.
    const isWhole = this.options.identity !== undefined
    const changed = isWhole ? new Map<string, string | null>() : await changedTexts(this.source, this.output, metadata)
    for (const [name, { size }] of metadata.files) {
      const got = await this.output.sizeOf(name)
      if (got !== size && !changed.has(name)) {
        throw new TargetError(
          this.output.location,
          `${name} has ${got ?? 'no'} bytes, want ${size}: remove the folder first`,
        )
      }
    }
    const refreshed = changed.size === 0 ? metadata : await this.refresh(metadata, changed)
    this.advance(this.total)
    return { metadata: refreshed, bytes: this.total, bytesReused: this.total }
  }

  /** Ends with the bytes that packing all of it would give. */
  private async refresh(metadata: Metadata, changed: ReadonlyMap<string, string | null>): Promise<Metadata> {
    const scratch = new PackScratch()
    const files = new Map([...metadata.files].filter(([name]) => !COPIED_NAMES.includes(name)))
    for (const name of COPIED_NAMES) {
      const text = changed.get(name)
      const kept = metadata.files.get(name)
      if (text === null) await this.output.remove(name)
      else if (text !== undefined) files.set(name, await this.writeFile(textJob(name, text), scratch))
      else if (kept !== undefined) files.set(name, kept)
    }
    const refreshed = { ...metadata, files }
    await this.writeFile(textJob(METADATA_NAME, formatMetadata(refreshed)), scratch)
    const names = [...changed.keys()].join(', ')
    this.options.onNotice?.(`${names} changed in ${this.source.location}: copied to ${this.output.location}`)
    return refreshed
  }

  private describe(identity: string): Pick<Metadata, 'model' | 'source' | 'options'> {
    const { quantization } = this.plan
    const name = this.options.name ?? modelNameOf(this.source.location)
    const options = {
      bits: quantization?.bits ?? (this.model.isQuantized ? null : 16),
      groupSize: quantization?.group ?? null,
      experts2bit: this.options.experts2bit ?? false,
    }
    return {
      model: name,
      source: { name: modelNameOf(this.source.location), layout: this.model.layout, identity },
      options,
    }
  }

  /** The small files, each with its text. */
  private async texts(model: string): Promise<Map<string, string>> {
    const texts = new Map<string, string>()
    const textConfig = this.configJson.text_config ?? this.configJson
    texts.set(MANIFEST_NAME, formatManifest(model, this.plan.stored, textConfig))
    texts.set(CONFIG_NAME, (await this.configText()) ?? '')
    for (const name of COPIED_NAMES) {
      const text = await this.source.readText(name)
      if (text !== null) texts.set(name, text)
    }
    return texts
  }

  /** As it is; or, where matrices are quantized on the way, with the block that MLX exports have. */
  private async configText(): Promise<string | null> {
    const { quantization } = this.plan
    if (quantization === null) return this.source.readText(CONFIG_NAME)
    const main = { group_size: quantization.group, bits: quantization.bits, mode: 'affine' }
    const gates = this.plan.items.flatMap(item =>
      item.kind === 'matrix' && item.spec.isGate && quantization.bits !== 8
        ? [[item.spec.name, { group_size: quantization.group, bits: 8 }]]
        : [],
    )
    const block = { ...main, ...Object.fromEntries(gates) }
    return `${JSON.stringify({ ...this.configJson, quantization: block }, null, 2)}\n`
  }
}

interface Job {
  readonly name: string
  write(context: WriteContext): Promise<void>
}

interface LargeJob extends Job {
  readonly shape: BlockShape
}

/** Files of one shape, with the file that holds the checksums of their blocks. */
interface LargeFiles {
  readonly names: readonly string[]
  readonly checksums: string
  readonly shape: BlockShape
}

function sizeOf({ shape }: LargeJob): number {
  return shape.records * shape.recordBytes
}

/** What an earlier run has finished, with a checksum for each of its blocks. */
function finishedBy(journal: ConversionJournal, { name, shape }: LargeJob): FinishedFile | undefined {
  const file = journal.get(name)
  return file?.sums.length === shape.records * blocksPerRecord(shape) ? file : undefined
}

function textJob(name: string, text: string): Job {
  return { name, write: ({ file }) => file.append(new TextEncoder().encode(text)) }
}

/** The source itself is at fault, and its weights will be no better next time. */
export function isRefusal(error: unknown): boolean {
  return error instanceof FormatError || error instanceof TensorError || error instanceof UnsupportedModelError
}

/** The folder's or file's own name; in the hub's cache, where folders are named after commits, the repository's. */
export function modelNameOf(location: string): string {
  const snapshots = dirname(location)
  const name = basename(location).replace(/(-\d{5}-of-\d{5})?\.gguf$/i, '')
  if (name !== basename(location) || basename(snapshots) !== 'snapshots') return name
  return basename(dirname(snapshots))
    .replace(/^models--/, '')
    .replaceAll('--', '/')
}
