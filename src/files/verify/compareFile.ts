// Reads a file from its start to its end and compares it with whatever is known of its content; and
// reads floats alone, the one thing that can be seen to be wrong without checksums: a NaN or an
// infinity among them would poison every token.
import { createHash, type Hash } from 'node:crypto'
import { FormatError, MoefluxError, ReadError } from '../../base/errors.js'
import { PROJECTIONS } from '../../model/expertLayout.js'
import { FLOAT_BYTES, type FloatType, findNonFinite } from '../../model/floats.js'
import { floatRanges, layerMatrices, layerVectors } from '../../model/tensorParts.js'
import { listSpecs, planTensors } from '../../model/tensorPlan.js'
import type { Matrix, Vector } from '../../model/tensors.js'
import type { Slice, SourceMatrix } from '../convert/sourceMatrix.js'
import type { SourceModel } from '../convert/sourceModel.js'
import { type BlockChecksums, BlockSummer, blocksPerRecord } from '../packed/blockChecksums.js'
import type { FileChecksum } from '../packed/manifest.js'
import type { PackedModel } from '../packed/packedModel.js'
import type { ByteSource, Folder, HubDigest } from '../source.js'

const PIECE_BYTES = 4 * 2 ** 20 // not measured
const NAMED_RECORDS = 8 // of damaged ones

/** What is known of a file; all of it must hold. */
export interface KnownContent {
  readonly listed?: FileChecksum // in moeflux.json
  readonly hub?: HubDigest
  readonly blocks?: { readonly table: BlockChecksums; readonly file: number; readonly name: string } // file of the table; name of it
}

export interface ReadOptions {
  readonly advance: (bytes: number) => void
  readonly signal?: AbortSignal
}

/** Returns the file's size. Throws what is wrong with it. */
export async function compareFile(
  folder: Folder,
  name: string,
  known: KnownContent,
  options: ReadOptions,
): Promise<number> {
  const file = `${folder.location}/${name}`
  const source = await folder.open(name).catch(error => {
    if (!(error instanceof MoefluxError)) throw error
    const detail = error instanceof ReadError || error instanceof FormatError ? error.detail : error.message
    throw new FormatError('MISSING_FILE', file, detail, { cause: error })
  })
  try {
    await compareSource(source, file, known, options)
    return source.size
  } finally {
    await source.close()
  }
}

async function compareSource(
  source: ByteSource,
  file: string,
  { listed, hub, blocks }: KnownContent,
  { advance, signal }: ReadOptions,
): Promise<void> {
  const size = blocks && blocks.table.records * blocks.table.recordBytes
  for (const want of [listed?.size, size]) {
    if (want !== undefined && want !== source.size) {
      throw new FormatError('SIZE_MISMATCH', file, `has ${source.size} bytes, want ${want}`)
    }
  }
  const whole = listed && createHash('sha256')
  const inHub = hub && hubHash(hub, source.size)
  const summer = blocks && new BlockSummer(blocks.table)
  const piece = new Uint8Array(Math.min(PIECE_BYTES, source.size))
  for (let offset = 0; offset < source.size; offset += piece.length) {
    const bytes = piece.subarray(0, Math.min(piece.length, source.size - offset))
    await source.read(offset, bytes, signal)
    whole?.update(bytes)
    inHub?.update(bytes)
    summer?.push(bytes)
    advance(bytes.length)
  }
  const damaged = summer && blocks ? damagedRecords(summer.finish(), blocks) : []
  const where = damaged.length > 0 && (blocks?.table.records ?? 0) > 1 ? ` (${experts(damaged)})` : ''
  for (const [got, want] of [
    [whole?.digest('hex'), listed?.sha256],
    [inHub?.digest('hex'), hub?.hex],
  ]) {
    if (got === want) continue
    const detail = `the checksum is ${got?.slice(0, 16)}…, want ${want?.slice(0, 16)}…: the file is damaged${where}`
    throw new FormatError('CHECKSUM_MISMATCH', file, detail)
  }
  if (damaged.length === 0) return
  const detail = `does not match the checksums of its blocks in ${blocks?.name}${where}`
  throw new FormatError('CHECKSUM_MISMATCH', file, detail)
}

/** As git names a blob, or the hub a large file. */
function hubHash({ kind }: HubDigest, size: number): Hash {
  return kind === 'sha256' ? createHash('sha256') : createHash('sha1').update(`blob ${size}\0`)
}

function damagedRecords(got: BigUint64Array, { table, file }: NonNullable<KnownContent['blocks']>): number[] {
  const perRecord = blocksPerRecord(table)
  const first = file * table.records * perRecord
  const damaged = new Set<number>()
  for (const [i, sum] of got.entries()) if (sum !== table.sums[first + i]) damaged.add(Math.floor(i / perRecord))
  return [...damaged]
}

function experts(damaged: readonly number[]): string {
  const more = damaged.length - NAMED_RECORDS
  const names = damaged.slice(0, NAMED_RECORDS).join(', ')
  return `${damaged.length === 1 ? 'expert' : 'experts'} ${names}${more > 0 ? ` and ${more} more` : ''}`
}

/** Floats of one tensor, where they are stored. */
export interface Floats extends Slice {
  readonly type: FloatType
  readonly what: string // 'scales of model.layers.0.mlp.gate'
}

/** Throws if floats of one file are not finite: the first that are not, and how many others. */
export async function checkFloats(all: Iterable<Floats>, { advance, signal }: ReadOptions): Promise<void> {
  let first: { readonly file: string; readonly detail: string } | null = null
  let others = 0
  for (const floats of all) {
    signal?.throwIfAborted()
    const detail = await firstBroken(floats, signal)
    advance(floats.size)
    if (detail !== null && first !== null) others++
    else if (detail !== null) first = { file: floats.source.name, detail }
  }
  if (first === null) return
  const more = others === 0 ? '' : `, and ${others} other ${others === 1 ? 'tensor does' : 'tensors do'}`
  throw new FormatError('NON_FINITE', first.file, `${first.detail}${more}`)
}

async function firstBroken({ source, offset, size, type, what }: Floats, signal?: AbortSignal): Promise<string | null> {
  const piece = new Uint8Array(Math.min(PIECE_BYTES, size))
  for (let at = 0; at < size; at += piece.length) {
    const bytes = piece.subarray(0, Math.min(piece.length, size - at))
    await source.read(offset + at, bytes, signal)
    const index = findNonFinite(type, bytes)
    if (index >= 0) return `${what} hold NaN or infinity, at byte ${offset + at + index * FLOAT_BYTES[type]}`
  }
  return null
}

export function* residentFloats({ tensors, weights: source }: PackedModel): Generator<Floats> {
  yield* matrixFloats(tensors.embed, source, 0)
  for (const layer of tensors.layers) {
    for (const matrix of layerMatrices(layer)) yield* matrixFloats(matrix, source, 0)
    for (const vector of layerVectors(layer)) yield vectorFloats(vector, source)
  }
  const { norm, lmHead, embed } = tensors
  yield vectorFloats(norm, source)
  if (lmHead.weight.offset !== embed.weight.offset) yield* matrixFloats(lmHead, source, 0)
}

/** `place`: among the layers with experts. */
export function* expertFloats({ experts, config }: PackedModel, place: number): Generator<Floats> {
  const { layouts, files } = experts
  const layout = layouts[place]
  for (let expert = 0; expert < config.numExperts; expert++) {
    for (const projection of PROJECTIONS) {
      yield* matrixFloats(layout[projection], files[place], expert * layout.expertSize, `expert ${expert}, `)
    }
    for (const bias of [layout.gateBias, layout.upBias, layout.downBias]) {
      if (bias === null) continue
      const floats = vectorFloats(bias, files[place])
      yield { ...floats, offset: expert * layout.expertSize + floats.offset, what: `expert ${expert}, ${floats.what}` }
    }
  }
}

function* matrixFloats(matrix: Matrix, source: ByteSource, base: number, owner = ''): Generator<Floats> {
  for (const { kind, type, offset, size } of floatRanges(matrix)) {
    yield { source, type, offset: base + offset, size, what: `${kind} of ${owner}${matrix.name}` }
  }
}

function vectorFloats({ name, type, data }: Vector, source: ByteSource): Floats {
  return { source, type, ...data, what: `values of ${name}` }
}

/** Every float that a model as it was downloaded needs. */
export function* sourceFloats(model: SourceModel): Generator<Floats> {
  for (const spec of listSpecs(planTensors(model.config))) {
    if (spec.kind === 'matrix') yield* sourceMatrixFloats(model.matrix(spec))
    else {
      const { name, type, data } = model.vector(spec)
      yield { ...data, type, what: `values of ${name}` }
    }
  }
  const { expertLayers, numExperts } = model.config
  for (const layer of expertLayers) {
    for (let expert = 0; expert < numExperts; expert++) {
      for (const projection of PROJECTIONS) yield* sourceMatrixFloats(model.expert(layer, expert, projection))
    }
  }
}

function* sourceMatrixFloats(matrix: SourceMatrix): Generator<Floats> {
  const floats = (kind: string, slice: Slice, type: FloatType) => ({
    ...slice,
    type,
    what: `${kind} of ${matrix.name}`,
  })
  if (matrix.kind === 'plain') yield floats('weights', matrix.weight, matrix.type)
  else if (matrix.kind === 'quantized') {
    yield floats('scales', matrix.scales, matrix.scaleType)
    yield floats('biases', matrix.biases, matrix.scaleType)
  }
}
