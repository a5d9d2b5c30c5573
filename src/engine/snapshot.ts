// MFLX version 1: the state of one sequence as bytes, the same from every backend. A snapshot in
// one buffer is checked before anything is changed, then its layers are taken one by one. One in
// pieces may have any length: at most one piece and the recurrent part of a few layers are in
// memory here. A snapshot does not contain its tokens. Byte layout in docs/formats.md.
import type { KvPart, LayerState, LinearLayerState, SequenceState, StateImport } from '../backends/backend.js'
import { SnapshotError } from '../base/errors.js'
import { layerKind, type ModelConfig } from '../model/config.js'
import { areFinite } from '../model/floats.js'
import { convStateSize, fullLayerCount, kvRowSize, recurrentStateSize } from '../model/sizes.js'

const MAGIC = 0x4d464c58 // 'MFLX' read as a number
const VERSION = 1
export const SNAPSHOT_HEADER_BYTES = 32
const PIECE_BYTES = 4 * 2 ** 20
const LARGEST_BUFFER = 2 ** 32 // bytes, in every engine of today
const PARTS: readonly KvPart[] = ['keys', 'values']

/** What a state is read from. */
export type StateReader = Pick<SequenceState, 'length' | 'exportLayer' | 'exportRows'>

/** Bytes of the snapshot of a sequence of `length` tokens. */
export function snapshotSize(config: ModelConfig, length: number): number {
  const full = fullLayerCount(config)
  const linear = config.numLayers - full
  const linearBytes = (convStateSize(config) + recurrentStateSize(config)) * 4
  return SNAPSHOT_HEADER_BYTES + full * (4 + 2 * length * kvRowSize(config) * 4) + linear * linearBytes
}

/** A snapshot in one buffer; throws if no buffer can be that large. */
export async function wholeSnapshot(state: StateReader, config: ModelConfig): Promise<Uint8Array> {
  const size = snapshotSize(config, state.length)
  if (size > LARGEST_BUFFER) {
    const message = `${size} bytes do not fit into one buffer: use saveStateTo and loadStateFrom`
    throw new SnapshotError('TooLarge', message, { got: size, want: LARGEST_BUFFER })
  }
  const bytes = new Uint8Array(size)
  bytes.set(snapshotHeader(config))
  let offset = SNAPSHOT_HEADER_BYTES
  for (let layer = 0; layer < config.numLayers; layer++) {
    for (const part of encodeLayer(await state.exportLayer(layer), state.length)) {
      bytes.set(part, offset)
      offset += part.length
    }
  }
  return bytes
}

export async function writeSnapshot(
  state: StateReader,
  config: ModelConfig,
  sink: (piece: Uint8Array) => void | Promise<void>,
): Promise<void> {
  const { length } = state
  await sink(snapshotHeader(config))
  for (let layer = 0; layer < config.numLayers; layer++) {
    if (layerKind(config, layer) === 'linear_attention') {
      for (const part of encodeLayer(await state.exportLayer(layer), length)) await sink(part)
      continue
    }
    await sink(new Uint8Array(Int32Array.of(length).buffer))
    for (const part of PARTS) {
      await eachPiece(config, length, async (start, rows) => {
        await sink(bytesOf(await state.exportRows(layer, part, start, rows)))
      })
    }
  }
}

export function snapshotHeader(config: ModelConfig): Uint8Array {
  return new Uint8Array(Uint32Array.from(headerFields(config), ([, value]) => value).buffer)
}

/** The header's eight numbers, with the names that errors call them by. */
function headerFields(config: ModelConfig): readonly (readonly [string, number])[] {
  return [
    ['magic', MAGIC],
    ['version', VERSION],
    ['num_layers', config.numLayers],
    ['full_attn_interval', config.fullAttentionInterval],
    ['num_kv_heads', config.numKvHeads],
    ['head_dim', config.headDim],
    ['linear_conv_bytes', convStateSize(config) * 4],
    ['linear_ssm_bytes', recurrentStateSize(config) * 4],
  ]
}

/** The bytes of one layer, in pieces that follow each other. */
export function encodeLayer(state: LayerState, length: number): Uint8Array[] {
  if (state.kind === 'linear_attention') return [bytesOf(state.conv), bytesOf(state.recurrent)]
  return [new Uint8Array(Int32Array.of(length).buffer), bytesOf(state.keys), bytesOf(state.values)]
}

/**
 * Throws what is wrong with a snapshot; returns the length of its sequence, null for a model
 * without full attention, whose snapshots do not say.
 */
export function checkSnapshot(bytes: Uint8Array, config: ModelConfig, contextLength: number): number | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  checkHeader(view, config)
  const rowBytes = kvRowSize(config) * 4
  const linearBytes = (convStateSize(config) + recurrentStateSize(config)) * 4
  let length: number | null = null
  let offset = SNAPSHOT_HEADER_BYTES
  for (let layer = 0; layer < config.numLayers; layer++) {
    if (layerKind(config, layer) === 'linear_attention') {
      needBytes(bytes, offset, linearBytes, layer)
      offset += linearBytes
      continue
    }
    needBytes(bytes, offset, 4, layer)
    const own: number = view.getInt32(offset, true)
    offset += 4
    checkLayerLength(own, layer, length, contextLength)
    length = own
    needBytes(bytes, offset, 2 * own * rowBytes, layer)
    offset += 2 * own * rowBytes
  }
  if (offset !== bytes.byteLength) {
    const message = `${bytes.byteLength - offset} bytes after the last layer`
    throw new SnapshotError('TrailingBytes', message, { got: bytes.byteLength, want: offset })
  }
  return length
}

/** The layers of a checked snapshot, in order. Throws at the first that holds NaN or infinity. */
export function* decodeLayers(bytes: Uint8Array, config: ModelConfig): Generator<LayerState> {
  let offset = SNAPSHOT_HEADER_BYTES
  const take = (floats: number): Float32Array => {
    const part = bytes.slice(offset, offset + floats * 4) // a copy of its own, at an address that fits floats
    offset += floats * 4
    return needFinite(new Float32Array(part.buffer, part.byteOffset, floats), layer)
  }
  let layer = 0
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  for (; layer < config.numLayers; layer++) {
    if (layerKind(config, layer) === 'linear_attention') {
      const conv = take(convStateSize(config))
      yield { kind: 'linear_attention', conv, recurrent: take(recurrentStateSize(config)) }
    } else {
      const size = view.getInt32(offset, true) * kvRowSize(config)
      offset += 4
      const keys = take(size)
      yield { kind: 'full_attention', keys, values: take(size) }
    }
  }
}

/**
 * Reads a snapshot into what `begin` opens for its length, and returns both; the caller commits.
 * Until then nothing has changed, so errors may come late. `knownLength`: of a model without full
 * attention, whose snapshots do not say.
 */
export async function readSnapshot(
  source: AsyncIterable<Uint8Array>,
  config: ModelConfig,
  limits: { readonly contextLength: number; readonly knownLength: number },
  begin: (length: number) => Promise<StateImport>,
): Promise<{ length: number; incoming: StateImport }> {
  const bytes = new PieceReader(source)
  let incoming: StateImport | null = null
  let length: number | null = null
  const early: { layer: number; state: LinearLayerState }[] = [] // before the first layer that says how long it is
  let layer = 0
  const floats = async (count: number) => {
    const piece = await bytes.take(count * 4, layer)
    return needFinite(new Float32Array(piece.buffer), layer)
  }
  const open = async (tokens: number): Promise<StateImport> => {
    const opened = await begin(tokens)
    for (const { layer: at, state } of early.splice(0)) opened.linear(at, state)
    return opened
  }
  try {
    const header = await bytes.take(SNAPSHOT_HEADER_BYTES, -1)
    checkHeader(new DataView(header.buffer), config)
    for (; layer < config.numLayers; layer++) {
      if (layerKind(config, layer) === 'linear_attention') {
        const conv = await floats(convStateSize(config))
        const state = { conv, recurrent: await floats(recurrentStateSize(config)) }
        if (incoming === null) early.push({ layer, state })
        else incoming.linear(layer, state)
        continue
      }
      const own = new DataView((await bytes.take(4, layer)).buffer).getInt32(0, true)
      checkLayerLength(own, layer, length, limits.contextLength)
      length = own
      const into: StateImport = incoming ?? (await open(own))
      incoming = into
      for (const part of PARTS) {
        await eachPiece(config, own, async (start, rows) => {
          into.rows(layer, part, start, await floats(rows * kvRowSize(config)))
        })
      }
    }
    await bytes.needEnd()
    length ??= limits.knownLength
    return { length, incoming: incoming ?? (await open(length)) }
  } catch (error) {
    incoming?.drop()
    throw error
  } finally {
    await bytes.close()
  }
}

async function eachPiece(config: ModelConfig, length: number, use: (start: number, rows: number) => Promise<void>) {
  const most = Math.max(1, Math.floor(PIECE_BYTES / (kvRowSize(config) * 4)))
  for (let start = 0; start < length; start += most) await use(start, Math.min(most, length - start))
}

/** Pieces of any size, read in sizes of one's own. */
class PieceReader {
  private readonly pieces: AsyncIterator<Uint8Array>
  private rest = new Uint8Array(0)

  constructor(source: AsyncIterable<Uint8Array>) {
    this.pieces = source[Symbol.asyncIterator]()
  }

  /** So many bytes, in memory of their own. */
  async take(count: number, layer: number): Promise<Uint8Array<ArrayBuffer>> {
    const out = new Uint8Array(count)
    let got = 0
    while (got < count) {
      if (this.rest.length === 0 && !(await this.more())) {
        const message = `layer ${layer} needs ${count} bytes, ${got} are left`
        throw new SnapshotError('Truncated', message, { layer, need: count, got })
      }
      const part = this.rest.subarray(0, count - got)
      out.set(part, got)
      got += part.length
      this.rest = this.rest.subarray(part.length)
    }
    return out
  }

  async needEnd(): Promise<void> {
    while (this.rest.length === 0) if (!(await this.more())) return
    throw new SnapshotError('TrailingBytes', 'bytes after the last layer', { got: this.rest.length, want: 0 })
  }

  async close(): Promise<void> {
    await this.pieces.return?.()
  }

  private async more(): Promise<boolean> {
    const { done, value } = await this.pieces.next()
    if (!done) this.rest = plainBytes(value) as Uint8Array<ArrayBuffer>
    return !done
  }
}

/** Throws unless `view` begins with the header of this model's snapshots. */
function checkHeader(view: DataView, config: ModelConfig): void {
  const fields = headerFields(config)
  fields.forEach(([field, want], i) => {
    if (view.byteLength < i * 4 + 4) {
      const message = `${view.byteLength} bytes, the header has ${SNAPSHOT_HEADER_BYTES}`
      throw new SnapshotError('Truncated', message, { layer: -1, need: SNAPSHOT_HEADER_BYTES, got: view.byteLength })
    }
    const got = view.getUint32(i * 4, true)
    if (got === want) return
    if (field === 'magic')
      throw new SnapshotError('BadMagic', `starts with ${hex(got)}, want ${hex(want)}`, { got, want })
    if (field === 'version') throw new SnapshotError('BadVersion', `version ${got}, want ${want}`, { got, want })
    throw new SnapshotError('ShapeMismatch', `${field} is ${got}, this model has ${want}`, { field, got, want })
  })
}

/** Throws unless a layer may have so many tokens; `others`: what earlier layers have. */
function checkLayerLength(own: number, layer: number, others: number | null, contextLength: number): void {
  if (own < 0) throw new SnapshotError('NegativeLength', `layer ${layer} has length ${own}`, { layer, got: own })
  if (own > contextLength) {
    const message = `layer ${layer} has length ${own}, the context limit is ${contextLength}`
    throw new SnapshotError('LengthOverflow', message, { layer, got: own, want: contextLength })
  }
  if (others !== null && own !== others) {
    const message = `layer ${layer} has length ${own}, earlier layers have ${others}`
    throw new SnapshotError('LengthsDiffer', message, { layer, got: own, want: others })
  }
}

/** Throws if a layer's values are NaN or infinity. */
export function needFinite(values: Float32Array, layer: number): Float32Array {
  if (areFinite(values)) return values
  throw new SnapshotError('NotFinite', `layer ${layer} holds values that are not finite`, { layer })
}

function needBytes(bytes: Uint8Array, offset: number, need: number, layer: number) {
  const got = bytes.byteLength - offset
  if (got < need) {
    throw new SnapshotError('Truncated', `layer ${layer} needs ${need} bytes, ${got} are left`, { layer, need, got })
  }
}

function bytesOf(floats: Float32Array): Uint8Array {
  return new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength)
}

/** The same memory without what Node's Buffer changes: its `slice` does not copy. */
export function plainBytes(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function hex(value: number): string {
  return `0x${value.toString(16).padStart(8, '0')}`
}
