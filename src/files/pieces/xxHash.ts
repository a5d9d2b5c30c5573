// xxHash32, for records that may have been damaged where they lie: fast enough to be checked on every read. It says
// nothing about who wrote them.

const P1 = 0x9e3779b1
const P2 = 0x85ebca77
const P3 = 0xc2b2ae3d
const P4 = 0x27d4eb2f
const P5 = 0x165667b1

export function xxHash32(bytes: Uint8Array, seed = 0): number {
  const { length } = bytes
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice()
  const words = new Uint32Array(aligned.buffer, aligned.byteOffset, length >> 2) // little-endian, as all browsers are
  const stripes = (length >> 4) << 2
  let hash: number
  let at = 0
  if (stripes > 0) {
    let a = (seed + P1 + P2) | 0
    let b = (seed + P2) | 0
    let c = seed | 0
    let d = (seed - P1) | 0
    for (; at < stripes; at += 4) {
      a = round(a, words[at])
      b = round(b, words[at + 1])
      c = round(c, words[at + 2])
      d = round(d, words[at + 3])
    }
    hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
  } else hash = seed + P5
  hash = (hash + length) | 0
  for (; at < words.length; at++) hash = Math.imul(rotate(hash + Math.imul(words[at], P3), 17), P4)
  for (let i = words.length * 4; i < length; i++) hash = Math.imul(rotate(hash + Math.imul(bytes[i], P5), 11), P1)
  hash = Math.imul(hash ^ (hash >>> 15), P2)
  hash = Math.imul(hash ^ (hash >>> 13), P3)
  return (hash ^ (hash >>> 16)) >>> 0
}

function round(lane: number, word: number): number {
  return Math.imul(rotate((lane + Math.imul(word, P2)) | 0, 13), P1)
}

function rotate(x: number, by: number): number {
  return (x << by) | (x >>> (32 - by))
}
