// Verifies a model folder: reads every byte that something is known of, and reports of every file
// of the model what it was compared with. Of a file that nothing is known of, sizes, shapes and
// floats are checked: that finds a poisoned scale and no more.
import { ModelNotFoundError, MoefluxError } from '../../base/errors.js'
import { parseConfig } from '../../model/config.js'
import { planPacking } from '../convert/packingPlan.js'
import { INDEX_NAME, openShardedModel, type ShardedModel } from '../convert/shardedModel.js'
import { SourceModel } from '../convert/sourceModel.js'
import { parseChecksums } from '../packed/blockChecksums.js'
import type { FileChecksum } from '../packed/manifest.js'
import { openPacked, readJson, readMetadata, refuseUnfinished } from '../packed/openPacked.js'
import type { PackedModel } from '../packed/packedModel.js'
import {
  CONFIG_NAME,
  COPIED_NAMES,
  type ExpertSetName,
  expertChecksumsName,
  expertFileName,
  GENERATION_CONFIG_NAME,
  isPackedName,
  JOURNAL_NAME,
  MANIFEST_NAME,
  METADATA_NAME,
  WEIGHTS_CHECKSUMS_NAME,
  WEIGHTS_NAME,
} from '../packed/packedNames.js'
import type { Folder, HubDigest, ListedFolder } from '../source.js'
import {
  checkFloats,
  compareFile,
  expertFloats,
  type Floats,
  type KnownContent,
  type ReadOptions,
  residentFloats,
  sourceFloats,
} from './compareFile.js'

const SETS: readonly ExpertSetName[] = ['packed_experts', 'packed_experts_2bit']

interface VerifyOptions {
  readonly onProgress?: (progress: { phase: string; loaded: number; total: number }) => void
  readonly signal?: AbortSignal
}

/** What all bytes of a file were compared with: moeflux.json, the checksums of its blocks, its name in the hub's cache. */
export type Comparison = 'sha256' | 'blocks' | 'hub'

interface ComparedFile {
  readonly name: string
  readonly size: number
  readonly with: Comparison
}

/** A file of the model whose bytes could not be compared with anything. */
interface UncomparedFile {
  readonly name: string
  readonly reason: string
  readonly looked: string | null // what was found without
}

export interface VerifyReport {
  readonly kind: 'packed' | 'mlx' | 'hf' | 'gguf' | 'unknown'
  readonly compared: readonly ComparedFile[] // and right
  readonly uncompared: readonly UncomparedFile[] // and nothing wrong was found
  readonly extra: readonly string[] // files that are none of the model's
  readonly bytes: number // read
  readonly problems: readonly MoefluxError[]
}

/** What the checks need of a model, packed by us or by others, or as it was downloaded. */
interface CheckedModel {
  readonly kind: VerifyReport['kind']
  readonly files: readonly string[] // listed ones may be missing
  readonly listed: ReadonlyMap<string, FileChecksum> // in moeflux.json
  readonly expertLayers: readonly number[] | undefined // undefined: it does not open
  hubDigest(name: string): Promise<HubDigest | null>
  /** All problems, if `damaged` are those of files that were compared. */
  problemsWith(damaged: MoefluxError[]): MoefluxError[]
  /** The floats of files that have some; none if the model does not open. */
  readonly floats: ReadonlyMap<string, Iterable<Floats>>
  readonly looksAtFloats: (problems: readonly MoefluxError[]) => boolean
  /** What was found of a file without comparing it. */
  looked(name: string): string | null
  readonly reason: string // why nothing is known of a file
  close(): Promise<void>
}

export async function verifyModel(folder: ListedFolder, options: VerifyOptions = {}): Promise<VerifyReport> {
  const { onProgress, signal } = options
  const names = await folder.list()
  const isPacked = [METADATA_NAME, JOURNAL_NAME, MANIFEST_NAME].some(name => names.includes(name))
  const model = await (isPacked ? openPackedFolder(folder, names) : openSourceFolder(folder, names))
  try {
    const { kind, files, listed, reason } = model
    const sizes = await Promise.all(files.map(name => listed.get(name)?.size ?? folder.sizeOf(name)))
    const total = sizes.reduce((sum, size) => sum + size, 0)
    let bytes = 0
    const advance = (count: number): void => {
      bytes += count
      onProgress?.({ phase: 'verify', loaded: Math.min(bytes, total), total })
    }
    const { compared, damaged } = await compareFiles(folder, model, { advance, signal })
    const problems = model.problemsWith(damaged)
    const isProblem = (name: string) => problems.some(problem => isAbout(problem, folder, name))
    const isCompared = new Set([...listed.keys(), ...compared.map(({ name }) => name)])
    const rest = files.filter(name => !isCompared.has(name) && !isProblem(name))
    if (model.looksAtFloats(problems)) {
      for (const [name, floats] of model.floats) {
        if (rest.includes(name)) await collect(problems, () => checkFloats(floats, { advance, signal }))
      }
    }
    const uncompared = rest.filter(name => !isProblem(name)).map(name => ({ name, reason, looked: model.looked(name) }))
    const known = new Set([METADATA_NAME, ...files])
    const extra = names.filter(name => !known.has(name))
    return { kind, compared, uncompared, extra, bytes, problems }
  } finally {
    await model.close()
  }
}

/** Compares all files of which something is known. */
async function compareFiles(folder: Folder, model: CheckedModel, options: ReadOptions) {
  const { files, listed } = model
  const compared: ComparedFile[] = []
  const damaged: MoefluxError[] = []
  const blocks = new Map<string, KnownContent['blocks']>()
  // Checksums of blocks come first: what they say of other files counts only if they are sound themselves.
  for (const name of [...files.filter(isSums), ...files.filter(each => !isSums(each))]) {
    options.signal?.throwIfAborted()
    const hub = (await model.hubDigest(name)) ?? undefined
    const known = { listed: listed.get(name), blocks: blocks.get(name), hub }
    if (known.listed === undefined && known.blocks === undefined && hub === undefined) continue
    await collect(damaged, async () => {
      const size = await compareFile(folder, name, known, options)
      compared.push({ name, size, with: known.listed ? 'sha256' : known.blocks ? 'blocks' : 'hub' })
      if (isSums(name)) await addBlocks(folder, name, model.expertLayers, blocks)
    })
  }
  return { compared, damaged }
}

function isSums(name: string): boolean {
  return name === WEIGHTS_CHECKSUMS_NAME || SETS.some(set => name === expertChecksumsName(set))
}

/** Enters what a file of checksums says under the names of the files that it is of. */
async function addBlocks(
  folder: Folder,
  name: string,
  layers: readonly number[] | undefined,
  blocks: Map<string, KnownContent['blocks']>,
): Promise<void> {
  const source = await folder.open(name)
  const bytes = new Uint8Array(source.size)
  await source.read(0, bytes).finally(() => source.close())
  const table = parseChecksums(bytes, null, source.name)
  const set = SETS.find(each => name === expertChecksumsName(each))
  for (let file = 0; file < table.files; file++) {
    const known = set === undefined ? WEIGHTS_NAME : expertFileName(set, layers?.[file] ?? file)
    blocks.set(known, { table, file, name })
  }
}

/** Whether a problem is one of this file. */
function isAbout(problem: MoefluxError, folder: Folder, name: string): boolean {
  return (problem as { file?: unknown }).file === `${folder.location}/${name}`
}

/** Runs a check; what is wrong with the folder is a problem, anything else is thrown. */
async function collect(problems: MoefluxError[], check: () => Promise<void>): Promise<void> {
  try {
    await check()
  } catch (error) {
    if (!(error instanceof MoefluxError)) throw error
    problems.push(error)
  }
}

/**
 * What moeflux.json lists is known by its checksums; of the rest, the checksums of blocks may be.
 */
async function openPackedFolder(folder: Folder, names: readonly string[]): Promise<CheckedModel> {
  await refuseUnfinished(folder)
  const metadata = await readMetadata(folder)
  const opening: MoefluxError[] = []
  // Every set of experts that the folder has, opened without comparing: that is what is done here.
  const sets = new Map<ExpertSetName, PackedModel>()
  for (const set of SETS) {
    const isMain = set === SETS[0]
    if (!isMain && !metadata?.experts.has(set) && !names.some(name => name.startsWith(`${set}/`))) continue
    await collect(opening, async () => {
      sets.set(set, await openPacked(folder, { expertBits: isMain ? undefined : 2, checksums: false }))
    })
  }
  const expertLayers: readonly number[] | undefined = sets.values().next().value?.config.expertLayers
  /** Files that the engine would read; all of such names if the model does not open. */
  const isUsed = (name: string) => {
    const layer = /\/layer_(\d+)\.bin$/.exec(name)?.[1]
    const isLayer = layer === undefined || (expertLayers?.includes(Number(layer)) ?? true)
    return isPackedName(name) && name !== METADATA_NAME && isLayer
  }
  const listed: ReadonlyMap<string, FileChecksum> = metadata?.files ?? new Map()
  const floats = new Map<string, Iterable<Floats>>()
  for (const [set, model] of sets) {
    if (floats.size === 0) floats.set(WEIGHTS_NAME, residentFloats(model))
    for (const [place, layer] of model.config.expertLayers.entries()) {
      floats.set(expertFileName(set, layer), expertFloats(model, place))
    }
  }
  const wellFormed = sets.size === 0 ? [] : [CONFIG_NAME, MANIFEST_NAME, GENERATION_CONFIG_NAME]
  return {
    kind: 'packed',
    files: [...listed.keys(), ...names.filter(name => isUsed(name) && !listed.has(name))],
    listed,
    expertLayers,
    hubDigest: async () => null,
    // Files that are known to be damaged explain why the folder does not open.
    problemsWith: damaged => (damaged.length > 0 ? damaged : opening),
    floats,
    looksAtFloats: () => true,
    looked(name) {
      if (floats.has(name)) return 'its size and shapes are right and its floats are finite'
      return wellFormed.includes(name) ? 'it is well-formed' : null
    },
    reason: metadata === null ? `there is no ${METADATA_NAME}` : `${METADATA_NAME} does not list it`,
    close: async () => {
      await Promise.all([...sets.values()].map(model => model.close()))
    },
  }
}

/**
 * A model as it was downloaded, MLX or Hugging Face. Files of the hub's cache are named after
 * their content. Of others, headers and shapes are checked: what a conversion would refuse is
 * found without one.
 */
async function openSourceFolder(folder: ListedFolder, names: readonly string[]): Promise<CheckedModel> {
  if (!names.includes(CONFIG_NAME)) {
    throw new ModelNotFoundError(folder.location, `holds no ${CONFIG_NAME}: it is not a model`)
  }
  const opening: MoefluxError[] = []
  const opened: { sharded?: ShardedModel; model?: SourceModel } = {}
  await collect(opening, async () => {
    const config = await readJson(folder, CONFIG_NAME)
    opened.sharded = await openShardedModel(folder)
    const parsed = parseConfig(config ?? {}, await readJson(folder, GENERATION_CONFIG_NAME))
    opened.model = new SourceModel(opened.sharded, parsed)
    planPacking(opened.model, {}) // every tensor is there, and has its shape
  })
  const { sharded, model } = opened
  const shards = [...(sharded?.shards.keys() ?? names.filter(name => name.endsWith('.safetensors')))]
  const texts = [CONFIG_NAME, INDEX_NAME, ...COPIED_NAMES].filter(name => names.includes(name))
  const floats = new Map<string, Iterable<Floats>>()
  let all: readonly Floats[] | null = null
  function* floatsIn(model: SourceModel, name: string): Generator<Floats> {
    const source = sharded?.shards.get(name)
    all ??= [...sourceFloats(model)]
    yield* all.filter(each => each.source === source)
  }
  if (model !== undefined) for (const name of shards) floats.set(name, floatsIn(model, name))
  return {
    kind: model?.layout ?? 'unknown',
    files: [...texts, ...shards],
    listed: new Map(),
    expertLayers: undefined,
    hubDigest: name => folder.hubDigest(name),
    problemsWith: damaged => [...damaged.reverse(), ...opening], // the last one first
    floats,
    looksAtFloats: problems => problems.length === 0,
    looked(name) {
      if (model === undefined) return null
      if (name.endsWith('.safetensors')) return 'its tensors are all there and their floats are finite'
      return [CONFIG_NAME, INDEX_NAME, GENERATION_CONFIG_NAME].includes(name) ? 'it is well-formed' : null
    },
    reason: 'it has no checksum',
    close: async () => {
      await sharded?.close()
    },
  }
}
