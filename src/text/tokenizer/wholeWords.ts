// Words of a vocabulary by their bytes, as arrays of numbers that threads can share: for tokenizers that take a word that
// is a token as it stands, without merging.
import { sharedBytes, sharedNumbers } from '../../base/sharedMemory.js'
import { bytesOfCharacters } from './byteCharacters.js'

export interface WholeWords {
  readonly slots: Int32Array // [a power of two] open addressing by hash: 1 + entry; 0 is empty
  readonly starts: Int32Array // [entries + 1] in `bytes`
  readonly bytes: Uint8Array // all words, one after the other
  readonly ids: Int32Array // [entries]
}

/** Entries whose text is no bytes are never met. `hidden`: ids that no text may become. */
export function buildWholeWords(vocabulary: ReadonlyMap<string, number>, hidden: ReadonlySet<number>): WholeWords {
  const entries: { bytes: Uint8Array; id: number }[] = []
  let size = 0
  for (const [text, id] of vocabulary) {
    const bytes = hidden.has(id) ? null : bytesOfCharacters(text)
    if (bytes === null) continue
    entries.push({ bytes, id })
    size += bytes.length
  }
  const words: WholeWords = {
    slots: sharedNumbers(2 ** Math.ceil(Math.log2(Math.max(16, entries.length * 2)))),
    starts: sharedNumbers(entries.length + 1),
    bytes: sharedBytes(size),
    ids: sharedNumbers(entries.length),
  }
  entries.forEach(({ bytes, id }, entry) => {
    const start = words.starts[entry]
    words.bytes.set(bytes, start)
    words.starts[entry + 1] = start + bytes.length
    words.ids[entry] = id
    const mask = words.slots.length - 1
    let slot = hashOf(bytes, bytes.length) & mask
    while (words.slots[slot] !== 0) slot = (slot + 1) & mask
    words.slots[slot] = entry + 1
  })
  return words
}

/** The id of a word, or -1. */
export function findWholeWord(words: WholeWords, word: Uint8Array, length: number): number {
  const { slots, starts, bytes, ids } = words
  const mask = slots.length - 1
  let slot = hashOf(word, length) & mask
  while (slots[slot] !== 0) {
    const entry = slots[slot] - 1
    const start = starts[entry]
    if (starts[entry + 1] - start === length) {
      let same = 0
      while (same < length && bytes[start + same] === word[same]) same++
      if (same === length) return ids[entry]
    }
    slot = (slot + 1) & mask
  }
  return -1
}

function hashOf(bytes: Uint8Array, length: number): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < length; i++) hash = Math.imul(hash ^ bytes[i], 0x01000193)
  return hash ^ (hash >>> 15)
}
