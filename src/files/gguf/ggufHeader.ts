// Parses what lies before the data of a GGUF file and checks every rule of the format: where each tensor lies is known to
// be right before a byte of it is read. Works on bytes in memory; how many of them there must be is found out by asking
// for more. What a file claims is compared with its size before anything is made of it.
import { FormatError } from '../../base/errors.js'
import { GGUF_TYPES, type GgufType } from './ggufTypes.js'

/** One for all: a vocabulary has half a million strings. */
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

const MAGIC = 0x46554747
const MAX_STRING_BYTES = 2 ** 24 // the longest chat templates have a few hundred thousand
const MAX_NAME_BYTES = 2 ** 16 - 1
const MAX_ELEMENTS = 2 ** 23 // of all arrays of a file together
const MAX_ARRAY_DEPTH = 4
const MAX_DIMENSIONS = 4
const MAX_ALIGNMENT = 2 ** 20
const DEFAULT_ALIGNMENT = 32

export type GgufValue = number | bigint | boolean | string | readonly GgufValue[]

export interface GgufTensor {
  readonly name: string
  readonly type: GgufType
  readonly shape: readonly number[] // rows first, as in numpy; the file lists dimensions the other way round
  readonly offset: number // from the start of the file
  readonly size: number // bytes
}

export interface GgufHeader {
  readonly version: number
  readonly metadata: ReadonlyMap<string, GgufValue>
  readonly tensors: ReadonlyMap<string, GgufTensor>
}

/** The header goes on past the bytes at hand, but not past the file. */
export class NeedsMore extends Error {}

/** `bytes` are the first of a file of `fileSize`. Throws NeedsMore where they are too few. */
export function parseGgufHeader(bytes: Uint8Array, fileSize: number, file: string): GgufHeader {
  const cursor = new Cursor(bytes, fileSize, file)
  if (cursor.uint32('the magic') !== MAGIC) throw new FormatError('BAD_MAGIC', file, "does not start with 'GGUF'")
  const version = cursor.uint32('the version')
  if (version !== 2 && version !== 3) {
    const swapped = version === 0x02000000 || version === 0x03000000
    const detail = swapped ? 'is big-endian, want little-endian' : `version ${version}, want 2 or 3`
    throw new FormatError('UNKNOWN_VERSION', file, detail)
  }
  const tensorCount = cursor.count('the number of tensors', 24)
  const metadataCount = cursor.count('the number of metadata entries', 13)
  const metadata = readMetadata(cursor, metadataCount)
  const alignment = alignmentOf(metadata, file)
  const listed = readTensors(cursor, tensorCount)
  const base = Math.ceil(cursor.at / alignment) * alignment
  const tensors = placeTensors(listed, base, alignment, fileSize, file)
  return { version, metadata, tensors }
}

function readMetadata(cursor: Cursor, count: number): Map<string, GgufValue> {
  const metadata = new Map<string, GgufValue>()
  for (let i = 0; i < count; i++) {
    const key = cursor.string(`key ${i}`, MAX_NAME_BYTES)
    if (metadata.has(key)) throw new FormatError('DUPLICATE_KEY', cursor.file, `the key ${show(key)} is there twice`)
    metadata.set(key, readValue(cursor, cursor.uint32(`the type of ${show(key)}`), show(key), 0))
  }
  return metadata
}

const STRING = 8
const ARRAY = 9
/** Bytes of a value by its type, at least: strings and arrays begin with a length. */
const VALUE_BYTES = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8]

/** `what`: the key as messages show it. */
function readValue(cursor: Cursor, type: number, what: string, depth: number): GgufValue {
  if (type === STRING) return cursor.string(what, MAX_STRING_BYTES)
  if (type >= VALUE_BYTES.length) {
    throw new FormatError('BAD_METADATA', cursor.file, `${what} has the unknown value type ${type}`)
  }
  return type === ARRAY ? readArray(cursor, what, depth) : cursor.scalar(type, what)
}

function readArray(cursor: Cursor, what: string, depth: number): GgufValue[] {
  if (depth === MAX_ARRAY_DEPTH) {
    const detail = `${what} has arrays nested deeper than ${MAX_ARRAY_DEPTH}`
    throw new FormatError('NESTED_TOO_DEEP', cursor.file, detail)
  }
  const type = cursor.uint32(what)
  if (type >= VALUE_BYTES.length) {
    throw new FormatError('BAD_METADATA', cursor.file, `${what} has elements of the unknown type ${type}`)
  }
  const length = cursor.count(`the length of ${what}`, VALUE_BYTES[type])
  cursor.takeElements(length, what)
  const values: GgufValue[] = []
  for (let i = 0; i < length; i++) values.push(readValue(cursor, type, what, depth + 1))
  return values
}

function alignmentOf(metadata: ReadonlyMap<string, GgufValue>, file: string): number {
  const value = metadata.get('general.alignment')
  if (value === undefined) return DEFAULT_ALIGNMENT
  const isGood = typeof value === 'number' && value >= 8 && value <= MAX_ALIGNMENT && Number.isInteger(Math.log2(value))
  if (isGood) return value
  throw new FormatError('BAD_ALIGNMENT', file, `general.alignment is ${show(value)}, want a power of two from 8 on`)
}

/** A tensor as it is listed; its offset counts from the start of the data. */
type ListedTensor = Omit<GgufTensor, 'offset'> & { readonly offset: bigint }

function readTensors(cursor: Cursor, count: number): Map<string, ListedTensor> {
  const { file } = cursor
  const tensors = new Map<string, ListedTensor>()
  for (let i = 0; i < count; i++) {
    const name = cursor.string(`the name of tensor ${i}`, MAX_NAME_BYTES)
    if (tensors.has(name)) throw new FormatError('TENSOR_TWICE', file, `tensor ${name} is there twice`)
    const dimensions = cursor.uint32(`tensor ${name}`)
    if (dimensions < 1 || dimensions > MAX_DIMENSIONS) {
      throw new FormatError(
        'BAD_SHAPE',
        file,
        `tensor ${name} has ${dimensions} dimensions, want 1 to ${MAX_DIMENSIONS}`,
      )
    }
    const shape = Array.from({ length: dimensions }, () => cursor.uint64(`tensor ${name}`)).reverse()
    const typeId = cursor.uint32(`tensor ${name}`)
    const type = GGUF_TYPES.get(typeId)
    if (type === undefined)
      throw new FormatError('UNKNOWN_DTYPE', file, `tensor ${name} has the unknown type ${typeId}`)
    const { sizes, size } = checkShape(name, shape, type, file)
    tensors.set(name, { name, type, shape: sizes, size, offset: cursor.uint64(`tensor ${name}`) })
  }
  return tensors
}

function checkShape(name: string, shape: readonly bigint[], type: GgufType, file: string) {
  if (shape.some(size => size === 0n))
    throw new FormatError('BAD_SHAPE', file, `tensor ${name} has no values: [${shape}]`)
  const values = shape.reduce((product, size) => product * size, 1n)
  const size = (values * BigInt(type.blockBytes)) / BigInt(type.blockValues)
  if (values > BigInt(Number.MAX_SAFE_INTEGER) || size > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw new FormatError('SHAPE_TOO_LARGE', file, `tensor ${name}: the shape [${shape}] has more than 2^53 values`)
  }
  const sizes = shape.map(Number)
  const row = sizes[sizes.length - 1]
  if (row % type.blockValues !== 0) {
    const detail = `tensor ${name}: rows of ${row} are no multiple of the ${type.blockValues} values of a ${type.name} block`
    throw new FormatError('BAD_SHAPE', file, detail)
  }
  return { sizes, size: Number(size) }
}

/** Each tensor lies at a multiple of the alignment, inside the file, and in nobody else's bytes. */
function placeTensors(
  listed: ReadonlyMap<string, ListedTensor>,
  base: number,
  alignment: number,
  fileSize: number,
  file: string,
): Map<string, GgufTensor> {
  const tensors = new Map<string, GgufTensor>()
  for (const [name, tensor] of listed) {
    if (tensor.offset % BigInt(alignment) !== 0n) {
      const detail = `tensor ${name} starts at ${tensor.offset}, which is no multiple of the alignment of ${alignment}`
      throw new FormatError('BAD_OFFSETS', file, detail)
    }
    const end = BigInt(base) + tensor.offset + BigInt(tensor.size)
    if (end > BigInt(fileSize)) {
      throw new FormatError(
        'TENSOR_PAST_FILE',
        file,
        `tensor ${name} ends at ${end}, past the file's ${fileSize} bytes`,
      )
    }
    tensors.set(name, { ...tensor, offset: base + Number(tensor.offset) })
  }
  const sorted = [...tensors.values()].sort((a, b) => a.offset - b.offset)
  for (let i = 1; i < sorted.length; i++) {
    const [before, tensor] = [sorted[i - 1], sorted[i]]
    if (tensor.offset < before.offset + before.size) {
      throw new FormatError('TENSORS_OVERLAP', file, `tensor ${tensor.name} overlaps tensor ${before.name}`)
    }
  }
  return tensors
}

class Cursor {
  at = 0
  private readonly view: DataView
  private elements = 0

  constructor(
    private readonly bytes: Uint8Array,
    private readonly fileSize: number,
    readonly file: string,
  ) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  uint32(what: string): number {
    return this.view.getUint32(this.take(4, what), true)
  }

  uint64(what: string): bigint {
    return this.view.getBigUint64(this.take(8, what), true)
  }

  /** How many of something that takes at least `bytesEach`: never more than the rest of the file could hold. */
  count(what: string, bytesEach: number): number {
    const count = this.uint64(what)
    const most = Math.floor((this.fileSize - this.at) / bytesEach)
    if (count > BigInt(most)) {
      throw new FormatError('COUNT_PAST_FILE', this.file, `${what} is ${count}, but the file has room for ${most}`)
    }
    return Number(count)
  }

  string(what: string, most: number): string {
    const at = this.take(8, what)
    const low = this.view.getUint32(at, true)
    const high = this.view.getUint32(at + 4, true)
    if (high > 0 || low > most) {
      const length = high * 2 ** 32 + low
      throw new FormatError('STRING_TOO_LONG', this.file, `${what} has ${length} bytes, want at most ${most}`)
    }
    const start = this.take(low, what)
    try {
      return decoder.decode(this.bytes.subarray(start, this.at))
    } catch (cause) {
      throw new FormatError('BAD_UTF8', this.file, `${what} is not UTF-8`, { cause })
    }
  }

  takeElements(count: number, what: string): void {
    this.elements += count
    if (this.elements <= MAX_ELEMENTS) return
    throw new FormatError('ARRAY_TOO_LONG', this.file, `${what}: more than ${MAX_ELEMENTS} elements in all arrays`)
  }

  scalar(type: number, what: string): number | bigint | boolean {
    const { view } = this
    const at = this.take(VALUE_BYTES[type], what)
    switch (type) {
      case 0:
        return view.getUint8(at)
      case 1:
        return view.getInt8(at)
      case 2:
        return view.getUint16(at, true)
      case 3:
        return view.getInt16(at, true)
      case 4:
        return view.getUint32(at, true)
      case 5:
        return view.getInt32(at, true)
      case 6:
        return view.getFloat32(at, true)
      case 7:
        return this.boolean(view.getUint8(at), what)
      case 10:
        return asNumber(view.getBigUint64(at, true))
      case 11:
        return asNumber(view.getBigInt64(at, true))
      default:
        return view.getFloat64(at, true)
    }
  }

  private boolean(byte: number, what: string): boolean {
    if (byte > 1) throw new FormatError('BAD_METADATA', this.file, `${what} is the boolean ${byte}, want 0 or 1`)
    return byte === 1
  }

  /** Where the next `count` bytes start. */
  private take(count: number, what: string): number {
    const start = this.at
    if (start + count > this.fileSize) {
      throw new FormatError('HEADER_TRUNCATED', this.file, `ends after ${this.fileSize} bytes, inside ${what}`)
    }
    if (start + count > this.bytes.byteLength) throw new NeedsMore()
    this.at = start + count
    return start
  }
}

function asNumber(value: bigint): number | bigint {
  const number = Number(value)
  return Number.isSafeInteger(number) ? number : value
}

/** A value for a message: short, whatever the file has. */
export function show(value: GgufValue | undefined): string {
  if (value === undefined) return 'missing'
  if (Array.isArray(value)) return `a list of ${value.length}`
  const text = typeof value === 'string' ? JSON.stringify(value) : String(value)
  return text.length > 80 ? `${text.slice(0, 77)}…` : text
}
