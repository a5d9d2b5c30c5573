// The 256 characters that byte-level vocabularies write bytes with.

/** By byte: printable characters stand for themselves, others are written from U+0100 on. */
export function byteCharacters(): string[] {
  const characters: string[] = []
  let next = 256
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
    characters.push(String.fromCharCode(printable ? byte : next++))
  }
  return characters
}

const BYTES = new Map(byteCharacters().map((character, byte) => [character, byte]))

/** The bytes that a vocabulary's entry is written for; null where it has characters that stand for none. */
export function bytesOfCharacters(text: string): Uint8Array | null {
  const bytes = new Uint8Array(text.length)
  for (let i = 0; i < text.length; i++) {
    const byte = BYTES.get(text[i])
    if (byte === undefined) return null
    bytes[i] = byte
  }
  return bytes
}
