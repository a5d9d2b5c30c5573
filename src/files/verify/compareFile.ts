// Reads a file from its start to its end and compares it with whatever is known of its content.
import { createHash, type Hash } from 'node:crypto'
import { FormatError, MoefluxError, ReadError } from '../../base/errors.js'
import { type BlockChecksums, BlockSummer, blocksPerRecord } from '../packed/blockChecksums.js'
import type { FileChecksum } from '../packed/manifest.js'
import type { ByteSource, Folder } from '../source.js'
import type { HubDigest } from '../verifyReport.js'

const PIECE_BYTES = 4 * 2 ** 20
const NAMED_RECORDS = 8 // of damaged ones

/** What is known of a file; all of it must hold. */
export interface KnownContent {
  readonly listed?: FileChecksum // in moeflux.json
  readonly hub?: HubDigest
  readonly blocks?: { readonly table: BlockChecksums; readonly file: number; readonly name: string } // file of the table; name of it
}

export interface CompareOptions {
  readonly advance: (bytes: number) => void
  readonly signal?: AbortSignal
}

/** The file's size where all is as it should be; else what is wrong. */
export async function compareFile(
  folder: Folder,
  name: string,
  known: KnownContent,
  options: CompareOptions,
): Promise<number | MoefluxError> {
  const file = `${folder.location}/${name}`
  let source: ByteSource
  try {
    source = await folder.open(name)
  } catch (error) {
    if (!(error instanceof MoefluxError)) throw error
    const detail = error instanceof ReadError || error instanceof FormatError ? error.detail : error.message
    return new FormatError('MISSING_FILE', file, detail, { cause: error })
  }
  try {
    return (await compareSource(source, file, known, options)) ?? source.size
  } catch (error) {
    if (error instanceof MoefluxError) return error
    throw error
  } finally {
    await source.close()
  }
}

async function compareSource(
  source: ByteSource,
  file: string,
  { listed, hub, blocks }: KnownContent,
  { advance, signal }: CompareOptions,
): Promise<FormatError | null> {
  const size = blocks && blocks.table.records * blocks.table.recordBytes
  for (const want of [listed?.size, size]) {
    if (want !== undefined && want !== source.size) {
      return new FormatError('SIZE_MISMATCH', file, `has ${source.size} bytes, want ${want}`)
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
  const mismatch = (got: string, want: string) => {
    const detail = `the checksum is ${got.slice(0, 16)}…, want ${want.slice(0, 16)}…: the file is damaged${where}`
    return new FormatError('CHECKSUM_MISMATCH', file, detail)
  }
  const sha256 = whole?.digest('hex')
  if (listed && sha256 !== listed.sha256) return mismatch(sha256 as string, listed.sha256)
  const digest = inHub?.digest('hex')
  if (hub && digest !== hub.hex) return mismatch(digest as string, hub.hex)
  if (damaged.length === 0) return null
  const detail = `does not match the checksums of its blocks in ${blocks?.name}${where}`
  return new FormatError('CHECKSUM_MISMATCH', file, detail)
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
