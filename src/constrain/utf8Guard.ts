// Keeps constrained output valid UTF-8. The grammar engine counts a lead byte's followers but lets through sequences
// that no UTF-8 decoder accepts (overlong forms, surrogates, past U+10FFFF), each of which would turn into several
// replacement characters and break a promised length. Tokens that hold such bytes whole are dropped from the
// vocabulary; those that would complete one are taken out of the mask.

const byteOfChar = new Map<string, number>()
for (let byte = 0, extra = 256; byte < 256; byte++) {
  const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174
  byteOfChar.set(String.fromCodePoint(printable ? byte : extra++), byte)
}

/** The bytes of a token in GPT-2's byte-level alphabet; null where a character is outside of it. */
export function pieceBytes(piece: string): Uint8Array | null {
  const bytes: number[] = []
  for (const char of piece) {
    const byte = byteOfChar.get(char)
    if (byte === undefined) return null
    bytes.push(byte)
  }
  return Uint8Array.from(bytes)
}

/** The second byte that may follow a lead byte. */
function secondByteRange(lead: number): readonly [number, number] {
  if (lead === 0xe0) return [0xa0, 0xbf]
  if (lead === 0xed) return [0x80, 0x9f]
  if (lead === 0xf0) return [0x90, 0xbf]
  if (lead === 0xf4) return [0x80, 0x8f]
  return [0x80, 0xbf]
}

function sequenceLength(lead: number): number {
  if (lead < 0x80) return 1
  if (lead >= 0xc2 && lead <= 0xdf) return 2
  if (lead >= 0xe0 && lead <= 0xef) return 3
  return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0
}

export class Utf8Guard {
  readonly pieces: readonly string[] // as given, '' for tokens that can never be part of valid UTF-8
  private readonly danglingLead: Uint8Array // [tokens]: the lead byte that a token ends with, else 0
  private readonly firstByteTokens = new Map<number, number[]>()

  constructor(pieces: readonly string[]) {
    const kept = [...pieces]
    this.danglingLead = new Uint8Array(pieces.length)
    for (let id = 0; id < pieces.length; id++) {
      const bytes = pieceBytes(pieces[id])
      const lead = bytes === null ? null : danglingLead(bytes)
      if (bytes === null || lead === null) {
        kept[id] = ''
        continue
      }
      if (bytes.length === 0) continue
      this.danglingLead[id] = lead
      if (bytes[0] >= 0x80 && bytes[0] < 0xc0) {
        const list = this.firstByteTokens.get(bytes[0])
        if (list === undefined) this.firstByteTokens.set(bytes[0], [id])
        else list.push(id)
      }
    }
    this.pieces = kept
  }

  /** Takes out of `mask` the tokens that may not follow the last token accepted. */
  apply(mask: Uint32Array, lastToken: number | null): void {
    const lead = lastToken === null ? 0 : (this.danglingLead[lastToken] ?? 0)
    if (lead === 0) return
    const [low, high] = secondByteRange(lead)
    for (const [byte, ids] of this.firstByteTokens) {
      if (byte >= low && byte <= high) continue
      for (const id of ids) mask[id >>> 5] &= ~(1 << (id & 31))
    }
  }
}

/** 0, or the lead byte that the bytes end with; null for bytes that valid UTF-8 cannot hold. They may begin inside a character. */
function danglingLead(bytes: Uint8Array): number | null {
  let at = 0
  while (at < bytes.length && at < 3 && bytes[at] >= 0x80 && bytes[at] < 0xc0) at++
  while (at < bytes.length) {
    const length = sequenceLength(bytes[at])
    if (length === 0) return null
    if (length > 1 && at + 1 === bytes.length) return bytes[at]
    for (let i = 1; i < length && at + i < bytes.length; i++) {
      const [low, high] = i === 1 ? secondByteRange(bytes[at]) : [0x80, 0xbf]
      if (bytes[at + i] < low || bytes[at + i] > high) return null
    }
    at += length
  }
  return 0
}
