// Conversions between the float types that tensors are stored in. Bulk loops over typed arrays, no allocation per
// element. Bytes are little-endian, as on every machine that JavaScript engines run on today.

export type FloatType = 'BF16' | 'F16' | 'F32'

const word = new Uint32Array(1)
const float = new Float32Array(word.buffer)

export const FLOAT_BYTES: Readonly<Record<FloatType, number>> = { BF16: 2, F16: 2, F32: 4 }

export function bfloat16ToFloat32(bits: number): number {
  word[0] = bits << 16
  return float[0]
}

/** Nearest, half to even. NaN stays NaN: the rounding must not carry it over into infinity. */
export function float32ToBfloat16(value: number): number {
  float[0] = value
  const bits = word[0]
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff
}

export function float16ToFloat32(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >>> 10) & 0x1f
  const fraction = bits & 0x3ff
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

/** Nearest, half to even. */
export function float32ToFloat16(value: number): number {
  float[0] = value
  const bits = word[0]
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  if (magnitude >= 0x477ff000) return sign | 0x7c00 // rounds to 65536 or more
  if (magnitude < 0x38800000) {
    // Subnormal in half precision: the float unit itself rounds to a multiple of 2^-24.
    return sign | roundHalfEven(Math.abs(float[0]) * 2 ** 24)
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13)
}

/** Round to the nearest integer, half to even. Adding 1.5 * 2^52 leaves a double no bits below the point. */
export function roundHalfEven(x: number): number {
  if (!(Math.abs(x) < 4503599627370496)) return x
  return x + 6755399441055744 - 6755399441055744
}

/** Widens stored floats into `out`, from its start. `bytes` may lie at any address. */
export function widenFloats(type: FloatType, bytes: Uint8Array, out: Float32Array): void {
  const count = bytes.byteLength / FLOAT_BYTES[type]
  if (!Number.isInteger(count) || count > out.length) {
    throw new RangeError(`widenFloats: ${bytes.byteLength} bytes of ${type} into ${out.length} elements`)
  }
  if (type === 'F32') {
    new Uint8Array(out.buffer, out.byteOffset, count * 4).set(bytes)
    return
  }
  const halves = asUint16(bytes)
  if (type === 'BF16') {
    const words = new Uint32Array(out.buffer, out.byteOffset, count)
    for (let i = 0; i < count; i++) words[i] = halves[i] << 16
  } else {
    for (let i = 0; i < count; i++) out[i] = float16ToFloat32(halves[i])
  }
}

/** Narrows to BF16 into `out`, from its start. */
export function narrowToBfloat16(values: Float32Array, out: Uint16Array): void {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length)
  for (let i = 0; i < words.length; i++) {
    const bits = words[i]
    out[i] = (bits & 0x7fffffff) > 0x7f800000 ? (bits >>> 16) | 0x40 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16
  }
}

/** Index of the first NaN or infinity among stored floats, or -1. */
export function findNonFinite(type: FloatType, bytes: Uint8Array): number {
  if (type === 'F32') {
    const words = asUint32(bytes)
    for (let i = 0; i < words.length; i++) if ((words[i] & 0x7f800000) === 0x7f800000) return i
    return -1
  }
  const exponent = type === 'BF16' ? 0x7f80 : 0x7c00
  const halves = asUint16(bytes)
  for (let i = 0; i < halves.length; i++) if ((halves[i] & exponent) === exponent) return i
  return -1
}

/** Whether no value is NaN or infinite. 0 times any other value is 0; four sums, because one would wait for itself. */
export function areFinite(values: Float32Array): boolean {
  const { length } = values
  let a = 0
  let b = 0
  let c = 0
  let d = 0
  let i = 0
  for (; i + 4 <= length; i += 4) {
    a += values[i] * 0
    b += values[i + 1] * 0
    c += values[i + 2] * 0
    d += values[i + 3] * 0
  }
  for (; i < length; i++) a += values[i] * 0
  return a + b + c + d === 0
}

/** The bytes as 16-bit words: a view where the address allows it, else a copy. */
export function asUint16(bytes: Uint8Array): Uint16Array {
  const aligned = bytes.byteOffset % 2 === 0 ? bytes : bytes.slice()
  return new Uint16Array(aligned.buffer, aligned.byteOffset, aligned.byteLength >>> 1)
}

/** The bytes as 32-bit words: a view where the address allows it, else a copy. */
export function asUint32(bytes: Uint8Array): Uint32Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice()
  return new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength >>> 2)
}

/** All parts behind each other. */
export function joinFloats(parts: readonly Float32Array[]): Float32Array {
  const out = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}
