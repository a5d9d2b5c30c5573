// Snapshots at rest: a small versioned wrapper around MFLX with the tokens, the model's fingerprint and a checksum, so that
// a file from another model, a torn write or a flipped bit is refused and never served. The body may be compact: keys and
// values in 16 bits, the recurrent state always as it is. Byte layout in docs/formats.md. Touches no files itself.
import { SnapshotError } from '../base/errors.js'
import { sha256 } from '../base/sha256.js'
import { layerKind, type ModelConfig } from '../model/config.js'
import { float16ToFloat32, float32ToFloat16, narrowToBfloat16, widenFloats } from '../model/floats.js'
import { convStateSize, kvRowSize, recurrentStateSize } from '../model/sizes.js'
import { plainBytes, SNAPSHOT_HEADER_BYTES, snapshotSize } from './snapshot.js'

const MAGIC = 0x4d464c45 // 'MFLE' read as a number
const VERSION = 1
const HEADER_BYTES = 32
const CHECKSUM_BYTES = 32

/** How keys and values are kept: float32 as they are, or rounded to 16 bits. */
export type EnvelopeBody = 'exact' | 'f16' | 'bf16'
const BODIES: readonly EnvelopeBody[] = ['exact', 'f16', 'bf16']

export interface EnvelopeContent {
  readonly fingerprint: string // of the model
  readonly tokens: ArrayLike<number> // [length]
  readonly logits: Float32Array | null // [vocab], of the last token, where known
  readonly snapshot: Uint8Array // MFLX version 1
}

/** `snapshot` must be of the model with `config` and as long as `tokens`. */
export async function encodeEnvelope(
  content: EnvelopeContent,
  config: ModelConfig,
  body: EnvelopeBody = 'exact',
): Promise<Uint8Array> {
  const fingerprint = new TextEncoder().encode(content.fingerprint)
  const tokens = Uint32Array.from(content.tokens)
  const logits = content.logits ?? new Float32Array(0)
  const bodyBytes = body === 'exact' ? content.snapshot : compactBody(content.snapshot, config, body)
  const bodyStart = HEADER_BYTES + pad4(fingerprint.length) + 4 * tokens.length + 4 * logits.length
  const checkedBytes = bodyStart + bodyBytes.length
  const out = new Uint8Array(checkedBytes + CHECKSUM_BYTES)
  const view = new DataView(out.buffer)
  const fields = [MAGIC, VERSION, BODIES.indexOf(body), fingerprint.length, tokens.length, logits.length]
  fields.forEach((value, i) => {
    view.setUint32(i * 4, value, true)
  })
  view.setBigUint64(24, BigInt(bodyBytes.length), true)
  out.set(fingerprint, HEADER_BYTES)
  out.set(new Uint8Array(tokens.buffer), HEADER_BYTES + pad4(fingerprint.length))
  out.set(bytesOf(logits), bodyStart - 4 * logits.length)
  out.set(bodyBytes, bodyStart)
  out.set(await sha256(out.subarray(0, checkedBytes)), checkedBytes)
  return out
}

/**
 * Checks everything and unwraps. Throws SnapshotError; `OtherModel` where the file is sound but not of this model. The
 * snapshot that comes out still has to pass `loadState`.
 */
export async function decodeEnvelope(
  bytes: Uint8Array,
  model: { readonly fingerprint: string; readonly config: ModelConfig },
): Promise<EnvelopeContent> {
  bytes = plainBytes(bytes)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  needSize(bytes.length, HEADER_BYTES + CHECKSUM_BYTES)
  const field = (i: number) => view.getUint32(i * 4, true)
  if (field(0) !== MAGIC)
    throw new SnapshotError('BadMagic', 'not a moeflux state file', { got: field(0), want: MAGIC })
  if (field(1) !== VERSION) {
    throw new SnapshotError('BadVersion', `version ${field(1)}, want ${VERSION}`, { got: field(1), want: VERSION })
  }
  const [fingerprintBytes, tokenCount, logitCount] = [field(3), field(4), field(5)]
  const tokensStart = HEADER_BYTES + pad4(fingerprintBytes)
  const logitsStart = tokensStart + 4 * tokenCount
  const bodyStart = logitsStart + 4 * logitCount
  const checkedBytes = bodyStart + Number(view.getBigUint64(24, true))
  needSize(bytes.length, checkedBytes + CHECKSUM_BYTES)
  if (bytes.length !== checkedBytes + CHECKSUM_BYTES) {
    const want = checkedBytes + CHECKSUM_BYTES
    throw new SnapshotError('TrailingBytes', `${bytes.length - want} bytes too many`, { got: bytes.length, want })
  }
  const sum = await sha256(bytes.subarray(0, checkedBytes))
  if (!sum.every((byte, i) => byte === bytes[checkedBytes + i])) {
    throw new SnapshotError('BadChecksum', 'the state file is damaged')
  }
  const fingerprint = new TextDecoder().decode(bytes.slice(HEADER_BYTES, HEADER_BYTES + fingerprintBytes))
  if (fingerprint !== model.fingerprint) {
    const message = `belongs to the model ${fingerprint}, this one is ${model.fingerprint}`
    throw new SnapshotError('OtherModel', message, { got: fingerprint, want: model.fingerprint })
  }
  const { config } = model
  const tokens = new Uint32Array(bytes.slice(tokensStart, logitsStart).buffer)
  const logits = new Float32Array(bytes.slice(logitsStart, bodyStart).buffer)
  if (logitCount !== 0 && logitCount !== config.vocabSize) bad(`${logitCount} logits for ${config.vocabSize} tokens`)
  const body = bytes.subarray(bodyStart, checkedBytes)
  const kind = BODIES[field(2)] ?? bad(`body kind ${field(2)}`)
  const snapshot = kind === 'exact' ? body.slice() : expandBody(body, config, tokens.length, kind)
  return { fingerprint, tokens, logits: logitCount > 0 ? logits : null, snapshot }
}

/** Copies a snapshot with the floats of K and V in 16 bits. */
function compactBody(snapshot: Uint8Array, config: ModelConfig, body: 'f16' | 'bf16'): Uint8Array {
  const length = lengthOf(snapshot, config)
  const out = new Uint8Array(compactSize(config, length))
  const narrow = (from: Uint8Array, to: Uint8Array) => {
    const values = new Float32Array(from.slice().buffer)
    const halves = new Uint16Array(values.length)
    if (body === 'bf16') narrowToBfloat16(values, halves)
    else for (let i = 0; i < values.length; i++) halves[i] = float32ToFloat16(values[i])
    to.set(bytesOf(halves))
  }
  copyLayers(snapshot, 4, out, 2, config, length, narrow)
  return out
}

function expandBody(body: Uint8Array, config: ModelConfig, length: number, kind: 'f16' | 'bf16'): Uint8Array {
  if (body.length !== compactSize(config, length)) {
    bad(`a body of ${body.length} bytes, want ${compactSize(config, length)} for ${length} tokens`)
  }
  const out = new Uint8Array(snapshotSize(config, length))
  const widen = (from: Uint8Array, to: Uint8Array) => {
    const values = new Float32Array(from.length / 2)
    if (kind === 'bf16') widenFloats('BF16', from, values)
    else {
      const halves = new Uint16Array(from.slice().buffer)
      for (let i = 0; i < halves.length; i++) values[i] = float16ToFloat32(halves[i])
    }
    to.set(bytesOf(values))
  }
  copyLayers(body, 2, out, 4, config, length, widen)
  return out
}

/** Walks the layers of both forms side by side: K and V rows are converted, everything else is copied. */
function copyLayers(
  from: Uint8Array,
  fromFloat: number, // bytes of a K/V element
  to: Uint8Array,
  toFloat: number,
  config: ModelConfig,
  length: number,
  convert: (from: Uint8Array, to: Uint8Array) => void,
) {
  let source = 0
  let target = 0
  const copy = (bytes: number) => {
    to.set(from.subarray(source, source + bytes), target)
    source += bytes
    target += bytes
  }
  copy(SNAPSHOT_HEADER_BYTES)
  const values = length * kvRowSize(config)
  for (let layer = 0; layer < config.numLayers; layer++) {
    if (layerKind(config, layer) === 'linear_attention') {
      copy((convStateSize(config) + recurrentStateSize(config)) * 4)
      continue
    }
    copy(4)
    for (let part = 0; part < 2; part++) {
      convert(from.subarray(source, source + values * fromFloat), to.subarray(target, target + values * toFloat))
      source += values * fromFloat
      target += values * toFloat
    }
  }
}

/** The length that the first full-attention layer of a sound snapshot states. */
function lengthOf(snapshot: Uint8Array, config: ModelConfig): number {
  const linearBytes = (convStateSize(config) + recurrentStateSize(config)) * 4
  const first = config.layerKinds.indexOf('full_attention')
  if (first < 0) return 0
  const offset = SNAPSHOT_HEADER_BYTES + first * linearBytes
  return new DataView(snapshot.buffer, snapshot.byteOffset).getInt32(offset, true)
}

function compactSize(config: ModelConfig, length: number): number {
  const perToken = snapshotSize(config, 1) - snapshotSize(config, 0)
  return snapshotSize(config, length) - (length * perToken) / 2
}

function needSize(got: number, need: number) {
  if (got < need) throw new SnapshotError('Truncated', `${got} bytes, want ${need}`, { got, need })
}

function bad(message: string): never {
  throw new SnapshotError('BadEnvelope', message)
}

function bytesOf(array: Float32Array | Uint16Array): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength)
}

function pad4(size: number): number {
  return Math.ceil(size / 4) * 4
}
