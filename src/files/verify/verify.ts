// Verifies a packed folder: what moeflux.json lists by its checksums, what it does not list by the checksums of blocks
// where there are any, and the rest by what can be seen without.
import { MoefluxError } from '../../base/errors.js'
import { parseChecksums } from '../packed/blockChecksums.js'
import type { Metadata } from '../packed/manifest.js'
import { openPacked, readMetadata, refuseUnfinished } from '../packed/openPacked.js'
import type { PackedModel } from '../packed/packedModel.js'
import {
  CONFIG_NAME,
  type ExpertSetName,
  expertChecksumsName,
  expertFileName,
  GENERATION_CONFIG_NAME,
  isPackedName,
  MANIFEST_NAME,
  METADATA_NAME,
  WEIGHTS_CHECKSUMS_NAME,
  WEIGHTS_NAME,
} from '../packed/packedNames.js'
import type { Folder } from '../source.js'
import {
  type ComparedFile,
  collect,
  isAbout,
  type ListedFolder,
  ReadCounter,
  type VerifyOptions,
  type VerifyReport,
} from '../verifyReport.js'
import { compareFile, type KnownContent } from './compareFile.js'
import { expertFloats, type Floats, lookAtFloats, residentFloats } from './verifyFloats.js'

const SETS: readonly ExpertSetName[] = ['packed_experts', 'packed_experts_2bit']

type Sets = ReadonlyMap<ExpertSetName, PackedModel>

export async function verifyPacked(
  folder: ListedFolder,
  names: readonly string[],
  options: VerifyOptions,
): Promise<VerifyReport> {
  await refuseUnfinished(folder)
  const metadata = await readMetadata(folder)
  const { sets, problems: openProblems } = await openSets(folder, metadata, names)
  try {
    const used = usedNames(sets, names)
    const listed = [...(metadata?.files ?? [])]
    const unlisted = used.filter(name => !metadata?.files.has(name))
    const sizes = await Promise.all(unlisted.map(name => folder.sizeOf(name)))
    const total = [...listed.map(([, file]) => file.size), ...sizes].reduce((sum, size) => sum + size, 0)
    const counter = new ReadCounter(total, options)
    const { compared, problems } = await compareFiles(folder, metadata, unlisted, expertLayers(sets), counter, options)
    // Files that are known to be damaged explain why the folder does not open.
    if (problems.length === 0) problems.push(...openProblems)
    const isDone = (name: string) =>
      compared.some(file => file.name === name) || problems.some(problem => isAbout(problem, folder, name))
    const rest = unlisted.filter(name => !isDone(name))
    const looked = await lookAt(sets, rest, problems, counter, options)
    const reason = metadata === null ? `there is no ${METADATA_NAME}` : `${METADATA_NAME} does not list it`
    const uncompared = rest
      .filter(name => !problems.some(problem => isAbout(problem, folder, name)))
      .map(name => ({ name, reason, looked: looked.get(name) ?? null }))
    const known = new Set([METADATA_NAME, ...listed.map(([name]) => name), ...used])
    const extra = names.filter(name => !known.has(name))
    return { kind: 'packed', compared, uncompared, extra, bytes: counter.bytes, problems }
  } finally {
    await Promise.all([...sets.values()].map(model => model.close()))
  }
}

/** Every set of experts that the folder has, opened without comparing: that is what is done here. */
async function openSets(folder: Folder, metadata: Metadata | null, names: readonly string[]) {
  const sets = new Map<ExpertSetName, PackedModel>()
  const problems: MoefluxError[] = []
  for (const set of SETS) {
    const isMain = set === SETS[0]
    if (!isMain && !metadata?.experts.has(set) && !names.some(name => name.startsWith(`${set}/`))) continue
    await collect(problems, async () => {
      sets.set(set, await openPacked(folder, { expertBits: isMain ? undefined : 2, checksums: false }))
    })
  }
  return { sets, problems }
}

function expertLayers(sets: Sets): readonly number[] | undefined {
  return sets.values().next().value?.config.expertLayers
}

/** Files that are there and that the engine would read; all of such names where the model does not open. */
function usedNames(sets: Sets, names: readonly string[]): string[] {
  const layers = expertLayers(sets)
  return names.filter(name => {
    const layer = /\/layer_(\d+)\.bin$/.exec(name)?.[1]
    return (
      isPackedName(name) && name !== METADATA_NAME && (layer === undefined || (layers?.includes(Number(layer)) ?? true))
    )
  })
}

/** Compares all files of which something is known. */
async function compareFiles(
  folder: Folder,
  metadata: Metadata | null,
  unlisted: readonly string[],
  layers: readonly number[] | undefined, // with experts
  counter: ReadCounter,
  { signal }: VerifyOptions,
) {
  const compared: ComparedFile[] = []
  const problems: MoefluxError[] = []
  const blocks = new Map<string, KnownContent['blocks']>()
  const names = [...(metadata?.files.keys() ?? []), ...unlisted]
  // Checksums of blocks come first: what they say of other files counts only if they are sound themselves.
  for (const name of [...names.filter(isSums), ...names.filter(each => !isSums(each))]) {
    signal?.throwIfAborted()
    const known = { listed: metadata?.files.get(name), blocks: blocks.get(name) }
    if (known.listed === undefined && known.blocks === undefined) continue
    const result = await compareFile(folder, name, known, { advance: counter.add, signal })
    if (result instanceof MoefluxError) {
      problems.push(result)
      continue
    }
    compared.push({ name, size: result, with: known.listed ? 'sha256' : 'blocks' })
    if (isSums(name)) await collect(problems, () => addBlocks(folder, name, layers, blocks))
  }
  return { compared, problems }
}

function isSums(name: string): boolean {
  return name === WEIGHTS_CHECKSUMS_NAME || SETS.some(set => name === expertChecksumsName(set))
}

/** Puts what a file of checksums says beside the names of the files that it is of. */
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

/** Of files that could not be compared: what was found without. What is wrong with them goes to `problems`. */
async function lookAt(
  sets: Sets,
  names: readonly string[],
  problems: MoefluxError[],
  counter: ReadCounter,
  { signal }: VerifyOptions,
): Promise<Map<string, string>> {
  const looked = new Map<string, string>()
  const look = async (name: string, all: Iterable<Floats>) => {
    if (!names.includes(name) || looked.has(name)) return
    looked.set(name, 'its size and shapes are right and its floats are finite')
    await collect(problems, async () => {
      const problem = await lookAtFloats(all, counter.add, signal)
      if (problem !== null) problems.push(problem)
    })
  }
  for (const [set, model] of sets) {
    await look(WEIGHTS_NAME, residentFloats(model))
    for (const [place, layer] of model.config.expertLayers.entries()) {
      await look(expertFileName(set, layer), expertFloats(model, place))
    }
  }
  if (sets.size > 0) {
    for (const name of [CONFIG_NAME, MANIFEST_NAME, GENERATION_CONFIG_NAME]) looked.set(name, 'it is well-formed')
  }
  return looked
}
