// A GGUF model on disk: one file, or the parts of one that was split (`-00001-of-0000N`), as one table of tensors with the
// metadata of the first. Sources stay open until close(). Knows nothing of what tensors mean.
import { FormatError, MoefluxError, ReadError } from '../../base/errors.js'
import type { ByteSource } from '../source.js'
import { type GgufHeader, type GgufTensor, type GgufValue, NeedsMore, parseGgufHeader, show } from './ggufHeader.js'

const FIRST_READ_BYTES = 2 ** 20
const MAX_HEADER_BYTES = 2 ** 28
const MAX_PARTS = 1000

export interface PlacedTensor extends GgufTensor {
  readonly source: ByteSource
}

export interface GgufFile {
  readonly name: string // the path, or that of the first part
  readonly metadata: ReadonlyMap<string, GgufValue>
  readonly tensors: ReadonlyMap<string, PlacedTensor>
  close(): Promise<void>
}

export async function readGgufHeader(source: ByteSource): Promise<GgufHeader> {
  if (source.size < 24) {
    throw new FormatError('HEADER_TRUNCATED', source.name, `${source.size} bytes, but the start of a header takes 24`)
  }
  for (let length = FIRST_READ_BYTES; ; length *= 4) {
    const bytes = new Uint8Array(Math.min(length, source.size, MAX_HEADER_BYTES))
    await source.read(0, bytes)
    try {
      return parseGgufHeader(bytes, source.size, source.name)
    } catch (error) {
      if (!(error instanceof NeedsMore)) throw error
      if (bytes.byteLength === MAX_HEADER_BYTES) {
        throw new FormatError('HEADER_TOO_LARGE', source.name, `a header of more than ${MAX_HEADER_BYTES} bytes`)
      }
    }
  }
}

/** Opens a file and, where it is a part, all others of its model. `open` is given the names of files. */
export async function openGgufFile(path: string, open: (path: string) => Promise<ByteSource>): Promise<GgufFile> {
  const sources: ByteSource[] = []
  const close = async () => {
    await Promise.all(sources.map(source => source.close()))
  }
  try {
    const parts = partsOf(path)
    const headers: GgufHeader[] = []
    for (const part of parts) {
      const source = await openPart(part, parts, open)
      sources.push(source)
      headers.push(await readGgufHeader(source))
    }
    const { metadata } = headers[0]
    if (parts.length > 1 || number(metadata, 'split.count') > 1) checkParts(headers, sources)
    return { name: parts[0], metadata, tensors: joinTensors(headers, sources), close }
  } catch (error) {
    await close()
    throw error
  }
}

/** The files of a model, by the name of one of them. */
function partsOf(path: string): string[] {
  const match = /^(.*)-(\d{5})-of-(\d{5})(\.gguf)$/i.exec(path)
  if (match === null) return [path]
  const [, stem, , total, extension] = match
  const count = Number(total)
  if (count < 1 || count > MAX_PARTS) {
    throw new FormatError('BAD_SPLIT', path, `the name says that there are ${count} parts, want 1 to ${MAX_PARTS}`)
  }
  return Array.from({ length: count }, (_, i) => `${stem}-${String(i + 1).padStart(5, '0')}-of-${total}${extension}`)
}

async function openPart(
  part: string,
  parts: readonly string[],
  open: (path: string) => Promise<ByteSource>,
): Promise<ByteSource> {
  try {
    return await open(part)
  } catch (cause) {
    if (parts.length === 1 || cause instanceof FormatError || !(cause instanceof MoefluxError)) throw cause
    const detail = cause instanceof ReadError ? cause.detail : cause.message
    throw new FormatError('MISSING_SHARD', parts[0], `part ${part}: ${detail}`, { cause })
  }
}

/** Each part says which it is, of how many, and how many tensors all have together. */
function checkParts(headers: readonly GgufHeader[], sources: readonly ByteSource[]): void {
  const total = headers.reduce((sum, { tensors }) => sum + tensors.size, 0)
  for (const [i, { metadata }] of headers.entries()) {
    const want = { 'split.no': i, 'split.count': headers.length, 'split.tensors.count': total }
    for (const [key, value] of Object.entries(want)) {
      if (number(metadata, key) === value) continue
      const detail = `${key} is ${show(metadata.get(key))}, want ${value}: the parts are not of one model, or some are missing`
      throw new FormatError('BAD_SPLIT', sources[i].name, detail)
    }
  }
}

function joinTensors(headers: readonly GgufHeader[], sources: readonly ByteSource[]): Map<string, PlacedTensor> {
  const tensors = new Map<string, PlacedTensor>()
  for (const [i, header] of headers.entries()) {
    for (const tensor of header.tensors.values()) {
      const other = tensors.get(tensor.name)
      if (other !== undefined) {
        const detail = `tensor ${tensor.name} is also in ${other.source.name}`
        throw new FormatError('TENSOR_TWICE', sources[i].name, detail)
      }
      tensors.set(tensor.name, { ...tensor, source: sources[i] })
    }
  }
  return tensors
}

/** NaN where there is no such number. */
function number(metadata: ReadonlyMap<string, GgufValue>, key: string): number {
  const value = metadata.get(key)
  return typeof value === 'number' ? value : Number.NaN
}
