// GGUF files built byte by byte, well-formed unless a test asks for something else.
import { GGUF_TYPES } from '#moeflux/files/gguf/ggufTypes.js'

const UINT32 = 4
const FLOAT32 = 6
const BOOL = 7
const STRING = 8
const ARRAY = 9

/** A value with the type that is written before it. */
export interface TypedValue {
  readonly type: number
  readonly bytes: Uint8Array
}

export interface TestGgufTensor {
  readonly name: string
  readonly shape: readonly (number | bigint)[] // rows first
  readonly type: number
  readonly data: Uint8Array
  /** From the start of the data, where it is not right behind the tensor before. */
  readonly offset?: bigint
}

export interface TestGguf {
  readonly magic?: string
  readonly version?: number
  readonly metadata?: readonly (readonly [key: string, value: TypedValue])[]
  readonly tensors?: readonly TestGgufTensor[]
  readonly tensorCount?: bigint
  readonly metadataCount?: bigint
  readonly alignment?: number
}

export const u32 = (value: number): TypedValue => ({ type: UINT32, bytes: word32(value) })
export const f32 = (value: number): TypedValue => ({
  type: FLOAT32,
  bytes: new Uint8Array(Float32Array.of(value).buffer),
})
export const bool = (value: boolean): TypedValue => ({ type: BOOL, bytes: Uint8Array.of(value ? 1 : 0) })
export const text = (value: string): TypedValue => ({ type: STRING, bytes: stringBytes(value) })

/** An array of values of one type. */
export function list(values: readonly TypedValue[], type = values[0]?.type ?? UINT32): TypedValue {
  return {
    type: ARRAY,
    bytes: joinAll([word32(type), word64(BigInt(values.length)), ...values.map(each => each.bytes)]),
  }
}

export function typeId(name: string): number {
  for (const [id, type] of GGUF_TYPES) if (type.name === name) return id
  throw new Error(`no type ${name}`)
}

export function buildGguf(file: TestGguf): Uint8Array {
  const { metadata = [], tensors = [], alignment = 32 } = file
  const parts = [
    new TextEncoder().encode(file.magic ?? 'GGUF'),
    word32(file.version ?? 3),
    word64(file.tensorCount ?? BigInt(tensors.length)),
    word64(file.metadataCount ?? BigInt(metadata.length)),
    ...metadata.flatMap(([key, { type, bytes }]) => [stringBytes(key), word32(type), bytes]),
  ]
  let end = 0
  const data: Uint8Array[] = []
  for (const { name, shape, type, data: bytes, offset } of tensors) {
    parts.push(stringBytes(name), word32(shape.length), ...[...shape].reverse().map(size => word64(BigInt(size))))
    parts.push(word32(type), word64(offset ?? BigInt(end)))
    const padding = -bytes.length & (alignment - 1)
    data.push(bytes, new Uint8Array(padding))
    end += bytes.length + padding
  }
  const header = join(...parts)
  return join(header, new Uint8Array(-header.length & (alignment - 1)), ...data)
}

export function word32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer)
}

export function word64(value: bigint): Uint8Array {
  return new Uint8Array(BigUint64Array.of(value).buffer)
}

export function stringBytes(value: string): Uint8Array {
  const bytes = new TextEncoder().encode(value)
  return join(word64(BigInt(bytes.length)), bytes)
}

export function join(...parts: readonly Uint8Array[]): Uint8Array {
  return joinAll(parts)
}

function joinAll(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}
