// MFLX version 1 in pieces, so that a state of any length can be written and read: at no time is more of it in memory here
// than one piece and the recurrent part of a few layers. What is wrong is found on the way, and then nothing has changed.
import type { KvPart, LinearLayerState, SequenceState, StateImport } from '../backends/backend.js'
import { SnapshotError } from '../base/errors.js'
import { layerKind, type ModelConfig } from '../model/config.js'
import { convStateSize, kvRowSize, recurrentStateSize } from '../model/sizes.js'
import {
  bytesOf,
  checkHeader,
  checkLayerLength,
  encodeLayer,
  needFinite,
  plainBytes,
  SNAPSHOT_HEADER_BYTES,
  snapshotHeader,
  snapshotSize,
} from './snapshot.js'

const PIECE_BYTES = 4 * 2 ** 20
const LARGEST_BUFFER = 2 ** 32 // bytes, in every engine of today
const PARTS: readonly KvPart[] = ['keys', 'values']

/** What a state is read from. */
export type StateReader = Pick<SequenceState, 'length' | 'exportLayer' | 'exportRows'>

/** All of it in one piece, as far as there are buffers of that size. */
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

/**
 * Reads a snapshot into what `begin` opens for its length, and returns both; the caller commits. `knownLength`: of a model
 * without full attention, whose snapshots do not say.
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
