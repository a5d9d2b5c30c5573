// Reads the header of a safetensors file and checks every rule of the format: where each tensor lies is known to be
// right before a byte of it is read. Tensors cover the data without holes or overlaps. Reads no tensor data.
import { FormatError } from '../../base/errors.js'
import type { ByteSource } from '../source.js'
import { asObject, decodeUtf8, type JsonValue, parseStrictJson, show } from '../strictJson.js'

const MAX_HEADER_BYTES = 100_000_000

const DTYPE_BYTES: ReadonlyMap<string, number> = new Map([
  ['BOOL', 1],
  ['U8', 1],
  ['I8', 1],
  ['F8_E5M2', 1],
  ['F8_E4M3', 1],
  ['F8_E8M0', 1],
  ['I16', 2],
  ['U16', 2],
  ['F16', 2],
  ['BF16', 2],
  ['I32', 4],
  ['U32', 4],
  ['F32', 4],
  ['I64', 8],
  ['U64', 8],
  ['F64', 8],
  ['C64', 8],
])

export interface SafetensorsTensor {
  readonly name: string
  readonly dtype: string
  readonly shape: readonly number[]
  readonly offset: number // from the start of the file
  readonly size: number // bytes
}

export interface SafetensorsHeader {
  readonly tensors: ReadonlyMap<string, SafetensorsTensor>
  readonly metadata: ReadonlyMap<string, string>
}

export async function readSafetensorsHeader(source: ByteSource): Promise<SafetensorsHeader> {
  const file = source.name
  if (source.size < 8) {
    throw new FormatError('HEADER_TRUNCATED', file, `${source.size} bytes, but the header's length alone takes 8`)
  }
  const prefix = new Uint8Array(8)
  await source.read(0, prefix)
  const length = new DataView(prefix.buffer).getBigUint64(0, true)
  if (length === 0n) throw new FormatError('HEADER_EMPTY', file, 'the header has length 0')
  if (length > BigInt(MAX_HEADER_BYTES)) {
    throw new FormatError('HEADER_TOO_LARGE', file, `a header of ${length} bytes, want at most ${MAX_HEADER_BYTES}`)
  }
  const headerBytes = Number(length)
  if (8 + headerBytes > source.size) {
    const detail = `a header of ${headerBytes} bytes in a file of ${source.size}`
    throw new FormatError('HEADER_PAST_FILE', file, detail)
  }
  const header = new Uint8Array(headerBytes)
  await source.read(8, header)
  return parseSafetensorsHeader(header, source.size, file)
}

/** `header` is the JSON between the length and the data of a file of `fileSize` bytes. */
export function parseSafetensorsHeader(header: Uint8Array, fileSize: number, file: string): SafetensorsHeader {
  if (header[0] !== 0x7b) throw new FormatError('HEADER_NOT_OBJECT', file, "the header does not start with '{'")
  const root = asObject(parseStrictJson(decodeUtf8(header, file), file), file, 'the header')
  const base = 8 + header.byteLength
  const tensors = new Map<string, SafetensorsTensor>()
  let metadata: ReadonlyMap<string, string> = new Map()
  for (const [name, value] of root) {
    if (name === '__metadata__') metadata = parseMetadata(value, file)
    else tensors.set(name, parseTensor(name, value, base, file))
  }
  checkCoverage([...tensors.values()], base, fileSize, file)
  return { tensors, metadata }
}

function parseMetadata(value: JsonValue, file: string): ReadonlyMap<string, string> {
  const metadata = new Map<string, string>()
  for (const [key, text] of asObject(value, file, '__metadata__')) {
    if (typeof text !== 'string') {
      throw new FormatError('BAD_METADATA', file, `__metadata__.${key} is ${show(text)}, want a string`)
    }
    metadata.set(key, text)
  }
  return metadata
}

function parseTensor(name: string, value: JsonValue, base: number, file: string): SafetensorsTensor {
  const fields = asObject(value, file, `tensor ${name}`)
  const dtype = fields.get('dtype')
  const bytes = typeof dtype === 'string' ? DTYPE_BYTES.get(dtype) : undefined
  if (typeof dtype !== 'string' || bytes === undefined) {
    throw new FormatError('UNKNOWN_DTYPE', file, `tensor ${name} has the dtype ${show(dtype)}`)
  }
  const shape = fields.get('shape')
  if (!Array.isArray(shape) || !shape.every(isCount)) {
    throw new FormatError('BAD_SHAPE', file, `tensor ${name}: the shape is not a list of whole numbers`)
  }
  const offsets = fields.get('data_offsets')
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount)) {
    const got = Array.isArray(offsets) ? `[${offsets.map(show).join(', ')}]` : show(offsets)
    throw new FormatError('BAD_OFFSETS', file, `tensor ${name}: data_offsets are ${got}, want two whole numbers`)
  }
  const [begin, end] = offsets as number[]
  if (end < begin) {
    throw new FormatError('OFFSETS_REVERSED', file, `tensor ${name} ends at ${end}, before its begin at ${begin}`)
  }
  const size = byteSize(shape as number[], bytes)
  if (size === null) {
    throw new FormatError('SHAPE_TOO_LARGE', file, `tensor ${name}: the shape [${shape}] has more than 2^53 bytes`)
  }
  if (size !== end - begin) {
    const detail = `tensor ${name}: ${dtype} [${shape}] takes ${size} bytes, but its offsets span ${end - begin}`
    throw new FormatError('SIZE_MISMATCH', file, detail)
  }
  return { name, dtype, shape: shape as number[], offset: base + begin, size }
}

function isCount(value: JsonValue): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

/** Bytes of a shape, or null where the product leaves the range of exact integers. */
function byteSize(shape: readonly number[], bytes: number): number | null {
  let size = bytes
  let empty = false
  for (const dim of shape) {
    if (dim === 0) empty = true
    else size *= dim
    if (size > Number.MAX_SAFE_INTEGER) return null
  }
  return empty ? 0 : size
}

/** In order of their offsets, tensors follow each other without holes from the start of the data to the file's end. */
function checkCoverage(tensors: SafetensorsTensor[], base: number, fileSize: number, file: string): void {
  tensors.sort((a, b) => a.offset - b.offset || a.size - b.size)
  let at = base
  let before = 'the header'
  for (const tensor of tensors) {
    if (tensor.offset < at) {
      throw new FormatError('TENSORS_OVERLAP', file, `tensor ${tensor.name} overlaps ${before}`)
    }
    if (tensor.offset > at) {
      const detail = `a hole of ${tensor.offset - at} bytes between ${before} and tensor ${tensor.name}`
      throw new FormatError('HOLE', file, detail)
    }
    at = tensor.offset + tensor.size
    before = `tensor ${tensor.name}`
    if (at > fileSize) {
      const detail = `tensor ${tensor.name} ends at ${at}, past the file's ${fileSize} bytes`
      throw new FormatError('TENSOR_PAST_FILE', file, detail)
    }
  }
  if (at !== fileSize) {
    throw new FormatError('TRAILING_BYTES', file, `${fileSize - at} bytes follow the last tensor`)
  }
}
