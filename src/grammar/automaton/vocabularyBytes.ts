// The tokens of a tokenizer as bytes, for matching. Control tokens and tags are never part of a grammar's text, and the
// tokens that end an answer end it: they have no bytes here.
import type { VocabularyBytes } from './tokenTrie.js'

/** What a grammar needs to know of a tokenizer. */
export interface ConstraintVocabulary {
  /** A token's text in the byte-level alphabet; '' for one that must never come (a control token, or no token). */
  readonly piece: (token: number) => string
  readonly vocabSize: number // of the logits
  readonly stopTokenIds: readonly number[]
}

const AT_ONCE = 4096 // tokens between two breaths of the event loop

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

/** Gives way while it works: there are hundreds of thousands of tokens. */
export async function vocabularyBytes({
  piece,
  vocabSize,
  stopTokenIds,
}: ConstraintVocabulary): Promise<VocabularyBytes> {
  const ends = new Uint32Array(vocabSize)
  const parts: Uint8Array[] = []
  let end = 0
  for (let token = 0; token < ends.length; token++) {
    if (token % AT_ONCE === AT_ONCE - 1) await new Promise(resolve => setTimeout(resolve))
    const bytes = stopTokenIds.includes(token) ? null : pieceBytes(piece(token))
    if (bytes !== null) parts.push(bytes)
    ends[token] = end += bytes?.length ?? 0
  }
  const bytes = new Uint8Array(end)
  let at = 0
  for (const part of parts) {
    bytes.set(part, at)
    at += part.length
  }
  return { bytes, ends, vocabSize, stopTokenIds: stopTokenIds.filter(id => id >= 0 && id < vocabSize) }
}
