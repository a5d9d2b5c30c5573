// Opens a packed model folder: reads its JSON files, checks that every tensor and every expert file
// is what the model's shapes ask for, and says where the bytes are. Reads no weights, except a few
// samples of a folder without checksums. Checksums of blocks are compared as weights are read.
import { FormatError, ModelNotFoundError, messageOf, OptionError, TensorError } from '../../base/errors.js'
import { hex, sha256 } from '../../base/sha256.js'
import { type ModelConfig, parseConfig, withDraftHead } from '../../model/config.js'
import { defaultExpertFormats, type ExpertTables, expertLayouts, expertParts } from '../../model/expertLayout.js'
import { resolveTensors } from '../../model/resolveTensors.js'
import { DRAFT_HEAD_MARK } from '../../model/tensorPlan.js'
import type { ExpertLayout } from '../../model/tensors.js'
import type { ByteSource, Folder } from '../source.js'
import { checkNesting } from '../strictJson.js'
import { type BlockChecksums, type BlockShape, parseChecksums } from './blockChecksums.js'
import { CheckedSource } from './checkedSource.js'
import { fingerprintOf } from './fingerprint.js'
import { type Manifest, type Metadata, parseManifest, parseMetadata } from './manifest.js'
import type { ExpertFiles, PackedModel } from './packedModel.js'
import {
  CONFIG_NAME,
  type ExpertSetName,
  expertChecksumsName,
  expertFileName,
  GENERATION_CONFIG_NAME,
  JOURNAL_NAME,
  MANIFEST_NAME,
  METADATA_NAME,
  WEIGHTS_CHECKSUMS_NAME,
  WEIGHTS_NAME,
} from './packedNames.js'

interface OpenPackedOptions {
  /** Use the second set of experts, in 2 bits. */
  readonly expertBits?: 2
  /** Compare weights with the folder's checksums, where it has them by blocks. Default true. */
  readonly checksums?: boolean
}

export async function openPacked(folder: Folder, options: OpenPackedOptions = {}): Promise<PackedModel> {
  await refuseUnfinished(folder)
  const { config, metadata, manifest, set, layout, layouts } = await readShapes(folder, options)
  const manifestFile = `${folder.location}/${MANIFEST_NAME}`

  const opened: ByteSource[] = []
  const open = async (name: string): Promise<ByteSource> => {
    const source = await folder.open(name)
    opened.push(source)
    return source
  }
  const close = async () => {
    await Promise.all(opened.map(source => source.close()))
  }
  try {
    const checksums = async (name: string, shape: Omit<BlockShape, 'blockBytes'>) =>
      options.checksums === false ? null : await readChecksums(folder, metadata, name, shape)
    const plain = await open(WEIGHTS_NAME)
    const tensors = withFileName(manifestFile, () => resolveTensors(config, manifest.tensors, plain))
    const ofWeights = await checksums(WEIGHTS_CHECKSUMS_NAME, { files: 1, records: 1, recordBytes: plain.size })
    const weights = ofWeights === null ? plain : new CheckedSource(plain, ofWeights, 0)
    const files: ByteSource[] = []
    for (const layer of config.expertLayers) {
      const file = await open(expertFileName(set, layer))
      const want = config.numExperts * layout.expertSize
      if (file.size !== want) {
        const detail = `has ${file.size} bytes, want ${want} (${config.numExperts} experts of ${layout.expertSize})`
        throw new FormatError('BAD_TENSOR', file.name, detail)
      }
      files.push(file)
    }
    const shape = { files: config.expertLayers.length, records: config.numExperts, recordBytes: layout.expertSize }
    const ofExperts = files.length === 0 ? null : await checksums(expertChecksumsName(set), shape)
    const experts: ExpertFiles = {
      layout,
      layouts,
      files: ofExperts === null ? files : files.map((file, i) => new CheckedSource(file, ofExperts, i)),
      checksums: ofExperts,
    }
    return {
      name: metadata?.model || manifest.model || (folder.location.split(/[\\/]/).filter(Boolean).pop() ?? 'model'),
      folder,
      config,
      tensors,
      weights,
      experts,
      fingerprint: await fingerprintOf({ config, stored: manifest.tensors, metadata, set, weights, files }),
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** Null for a folder that has none: packed by others, or before there were any. */
async function readChecksums(
  folder: Folder,
  metadata: Metadata | null,
  name: string,
  shape: Omit<BlockShape, 'blockBytes'>,
): Promise<BlockChecksums | null> {
  const want = metadata?.files.get(name)
  if (want === undefined) return null
  const source = await folder.open(name)
  try {
    // Checksums that are damaged themselves must not be taken for damaged weights.
    if (source.size !== want.size) {
      throw new FormatError('SIZE_MISMATCH', source.name, `has ${source.size} bytes, want ${want.size}`)
    }
    const bytes = new Uint8Array(source.size)
    await source.read(0, bytes)
    if (hex(await sha256(bytes)) !== want.sha256) {
      source.forget?.(0, source.size)
      throw new FormatError('CHECKSUM_MISMATCH', source.name, 'does not match its own checksum: the file is damaged')
    }
    return parseChecksums(bytes, shape, source.name)
  } finally {
    await source.close()
  }
}

/** What a model's shapes are, from its small files alone. */
export interface PackedShapes {
  readonly config: ModelConfig
  readonly metadata: Metadata | null
  readonly manifest: Manifest
  readonly set: ExpertSetName
  readonly layout: ExpertLayout // of the first layer that has experts
  readonly layouts: readonly ExpertLayout[]
}

export async function readShapes(folder: Folder, options: OpenPackedOptions = {}): Promise<PackedShapes> {
  const text = await readConfig(folder)
  const metadata = await readMetadata(folder)
  const manifest = parseManifest(await readRequired(folder, MANIFEST_NAME), `${folder.location}/${MANIFEST_NAME}`)
  const config = manifest.tensors.has(DRAFT_HEAD_MARK) ? withDraftHead(text) : text
  const set = options.expertBits === 2 ? 'packed_experts_2bit' : 'packed_experts'
  const tableFile = `${folder.location}/${metadata === null ? CONFIG_NAME : METADATA_NAME}` // where their shapes stand
  const layouts = withFileName(tableFile, () => expertLayouts(config, tablesOf(config, metadata, set), set))
  return { config, metadata, manifest, set, layout: layouts[0], layouts }
}

/** A conversion that is under way, or was stopped, must not pass for a model. */
export async function refuseUnfinished(folder: Folder): Promise<void> {
  if ((await folder.readText(METADATA_NAME)) !== null || (await folder.readText(JOURNAL_NAME)) === null) return
  throw new FormatError('UNFINISHED', folder.location, 'its conversion is not finished: run it again to go on')
}

export async function readConfig(folder: Folder): Promise<ModelConfig> {
  const config = await readJson(folder, CONFIG_NAME)
  if (config === null) throw new ModelNotFoundError(folder.location, `holds no ${CONFIG_NAME}`)
  return parseConfig(config, await readJson(folder, GENERATION_CONFIG_NAME))
}

export async function readMetadata(folder: Folder): Promise<Metadata | null> {
  const text = await folder.readText(METADATA_NAME)
  return text === null ? null : parseMetadata(text, `${folder.location}/${METADATA_NAME}`)
}

/** A JSON file that holds one object, or null where there is no file. */
export async function readJson(folder: Folder, name: string): Promise<Readonly<Record<string, unknown>> | null> {
  const text = await folder.readText(name)
  return text === null ? null : parseObject(text, `${folder.location}/${name}`)
}

export function parseObject(text: string, file: string): Readonly<Record<string, unknown>> {
  checkNesting(text, file)
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch (cause) {
    throw new FormatError('BAD_JSON', file, messageOf(cause), { cause })
  }
  if (json === null || typeof json !== 'object' || Array.isArray(json)) {
    throw new FormatError('BAD_JSON', file, 'the file is not an object')
  }
  return json as Readonly<Record<string, unknown>>
}

/** Folders packed by others have no table: their experts are 4-bit (or 2-bit, in the second set) in groups of 64. */
function tablesOf(config: ModelConfig, metadata: Metadata | null, set: ExpertSetName): ExpertTables {
  if (config.numExperts === 0) {
    if (set !== 'packed_experts') throw new OptionError('expertBits', 2, 'nothing: this model has no experts')
    return [[]]
  }
  if (metadata === null) return [expertParts(config, defaultExpertFormats(set === 'packed_experts' ? 4 : 2))]
  const tables = metadata.experts.get(set)
  if (tables === undefined) throw new OptionError('expertBits', 2, 'nothing: this model has no 2-bit set of experts')
  return tables
}

async function readRequired(folder: Folder, name: string): Promise<string> {
  const text = await folder.readText(name)
  if (text === null) throw new ModelNotFoundError(folder.location, `holds no ${name}: it is not a packed model`)
  return text
}

/** Does `work`, and adds the file to errors about tensors of src/model, which knows no files. */
function withFileName<T>(file: string, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if (!(error instanceof TensorError) || error.file !== null) throw error
    throw new TensorError(error.tensor, error.detail, file)
  }
}
