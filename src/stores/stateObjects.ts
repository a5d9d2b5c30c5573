// The bytes of one object of a stored state: a page of keys and values, or the recurrent part with the rows after the last
// full page. Each says its own name and ends with a checksum, so that what is torn, damaged or another's is refused. Byte
// layout in docs/formats.md.
import type { KvPart, StateImport } from '../backends/backend.js'
import { SnapshotError } from '../base/errors.js'
import { sha256 } from '../base/sha256.js'
import { needFinite, type StateReader } from '../engine/snapshot.js'
import type { ModelConfig } from '../model/config.js'
import { narrowToBfloat16, widenFloats } from '../model/floats.js'
import { convStateSize, kvRowSize, layersOfKind, recurrentStateSize } from '../model/sizes.js'

/** How keys and values are kept: as they are, or rounded to 16 bits. */
export type StoredBody = 'f32' | 'bf16'

/** Rows [start, start + rows) of all full-attention layers; with `recurrent`, of a state that ends with them. */
export interface ObjectShape {
  readonly start: number
  readonly rows: number
  readonly recurrent: boolean
}

const MAGIC = 0x4d464c53 // 'MFLS' read as a number
const VERSION = 1
const HEADER_BYTES = 32
const CHECKSUM_BYTES = 32
const BODIES: readonly StoredBody[] = ['f32', 'bf16']
const PARTS: readonly KvPart[] = ['keys', 'values']

export function objectBytes(config: ModelConfig, shape: ObjectShape, body: StoredBody): number {
  const rowBytes = kvRowSize(config) * (body === 'f32' ? 4 : 2)
  const rows = layersOfKind(config, 'full_attention').length * 2 * shape.rows * rowBytes
  const perLayer = (convStateSize(config) + recurrentStateSize(config)) * 4
  return rows + (shape.recurrent ? layersOfKind(config, 'linear_attention').length * perLayer : 0)
}

export async function encodeObject(
  name: string,
  state: StateReader,
  config: ModelConfig,
  shape: ObjectShape,
  body: StoredBody,
): Promise<Uint8Array> {
  const named = new TextEncoder().encode(name)
  const checked = bodyStart(name) + objectBytes(config, shape, body)
  const out = new Uint8Array(checked + CHECKSUM_BYTES)
  const fields = [MAGIC, VERSION, BODIES.indexOf(body), shape.start, shape.rows, Number(shape.recurrent), named.length]
  out.set(new Uint8Array(Uint32Array.from(fields).buffer))
  out.set(named, HEADER_BYTES)
  let at = bodyStart(name)
  const put = (values: Float32Array, narrow = false) => {
    const bytes = narrow ? halves(values) : new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
    out.set(bytes, at)
    at += bytes.length
  }
  for (const [layer, kind] of config.layerKinds.entries()) {
    if (kind === 'full_attention') {
      for (const part of PARTS) {
        put(await state.exportRows(layer, part, shape.start, shape.rows), body === 'bf16')
      }
    } else if (shape.recurrent) {
      const linear = await state.exportLayer(layer)
      if (linear.kind !== 'linear_attention') continue
      put(linear.conv)
      put(linear.recurrent)
    }
  }
  out.set(await sha256(out.subarray(0, checked)), checked)
  return out
}

/** Throws SnapshotError unless these are the bytes that were written under this name. */
export async function checkObject(
  bytes: Uint8Array,
  name: string,
  config: ModelConfig,
  shape: ObjectShape,
  body: StoredBody,
): Promise<void> {
  const checked = bodyStart(name) + objectBytes(config, shape, body)
  if (bytes.length !== checked + CHECKSUM_BYTES) {
    const want = checked + CHECKSUM_BYTES
    throw new SnapshotError('BadEnvelope', `an object of ${bytes.length} bytes, want ${want}`, {
      got: bytes.length,
      want,
    })
  }
  const sum = await sha256(bytes.subarray(0, checked))
  if (!sum.every((byte, i) => byte === bytes[checked + i])) {
    throw new SnapshotError('BadChecksum', 'the stored object is damaged')
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const fields = [MAGIC, VERSION, BODIES.indexOf(body), shape.start, shape.rows, Number(shape.recurrent), name.length]
  const own = new TextDecoder().decode(bytes.slice(HEADER_BYTES, HEADER_BYTES + name.length))
  if (own !== name || !fields.every((want, i) => view.getUint32(i * 4, true) === want)) {
    throw new SnapshotError('OtherModel', 'the stored object is another than its name says')
  }
}

/** Puts the values of a checked object where they belong. Throws SnapshotError where one is not finite. */
export function unpackObject(
  bytes: Uint8Array,
  name: string,
  into: StateImport,
  config: ModelConfig,
  shape: ObjectShape,
  body: StoredBody,
): void {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice() // large ones are looked at where they are
  let at = bodyStart(name)
  const take = (count: number, layer: number, narrow = false): Float32Array => {
    const size = count * (narrow ? 2 : 4)
    const values = narrow
      ? widened(aligned.subarray(at, at + size))
      : new Float32Array(aligned.buffer, aligned.byteOffset + at, count)
    at += size
    return needFinite(values, layer)
  }
  for (const [layer, kind] of config.layerKinds.entries()) {
    if (kind === 'full_attention') {
      const count = shape.rows * kvRowSize(config)
      for (const part of PARTS) into.rows(layer, part, shape.start, take(count, layer, body === 'bf16'))
    } else if (shape.recurrent) {
      const conv = take(convStateSize(config), layer)
      into.linear(layer, { conv, recurrent: take(recurrentStateSize(config), layer) })
    }
  }
}

function widened(halves: Uint8Array): Float32Array {
  const values = new Float32Array(halves.length / 2)
  widenFloats('BF16', halves, values)
  return values
}

function bodyStart(name: string): number {
  return HEADER_BYTES + pad4(name.length)
}

function halves(values: Float32Array): Uint8Array {
  const out = new Uint16Array(values.length)
  narrowToBfloat16(values, out)
  return new Uint8Array(out.buffer)
}

function pad4(size: number): number {
  return Math.ceil(size / 4) * 4
}
