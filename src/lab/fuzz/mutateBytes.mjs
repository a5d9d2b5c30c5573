// Bytes that are wrong in a place: cut, flipped, overwritten by numbers at the edges of their range.

const EDGES_32 = [0, 1, 2, 0x7f, 0xff, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff]
const EDGES_64 = [0n, 1n, 7n, 8n, 2n ** 31n, 2n ** 32n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n]

/** A copy with one to three things wrong. `fields`: offsets at which numbers lie, which are hit more often. */
export function brokenBytes(bytes, random, fields = []) {
  let broken = bytes.slice()
  for (let i = random.between(1, 3); i > 0; i--) broken = breakOnce(broken, random, fields)
  return broken
}

function breakOnce(bytes, random, fields) {
  if (bytes.length === 0) return random.bytes(random.below(40))
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const at = random.below(bytes.length)
  const field = fields.length > 0 ? random.pick(fields) : at
  const length = Math.min(bytes.length - at, random.between(1, 64))
  const change = random.weighted([
    [3, () => bytes.subarray(0, at)],
    [3, () => bytes.subarray(0, Math.min(field, bytes.length))],
    [3, () => (bytes[at] ^= 1 << random.below(8))],
    [2, () => (bytes[at] = random.below(256))],
    [5, () => field + 4 <= bytes.length && view.setUint32(field, near(view.getUint32(field, true), random), true)],
    [2, () => field + 8 <= bytes.length && view.setBigUint64(field, random.pick(EDGES_64), true)],
    [2, () => bytes.fill(random.pick([0, 0xff, 0x7f]), at, at + length)],
    [2, () => joined(bytes.subarray(0, at), bytes.subarray(at + length))],
    [2, () => joined(bytes.subarray(0, at), random.bytes(length), bytes.subarray(at))],
    [1, () => joined(bytes, random.bytes(length))],
    [1, () => joined(bytes, bytes)],
  ])
  const result = change()
  return result instanceof Uint8Array ? result.slice() : bytes
}

function near(value, random) {
  return random.chance(0.5) ? random.pick(EDGES_32) : (value + random.pick([-1, 1, 2, 4, 64])) >>> 0
}

export function joined(...parts) {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}
