// Byte-pair merging over token ids. The library's own merge loop builds a string and a JSON key per candidate pair, so
// that one word of a megabyte blocks its thread for seconds; this one works on integers, gives the same ids, and needs
// n log n steps for a word of n bytes. Its tables are plain arrays of numbers, in memory that threads share where there
// is such memory. Knows only words: cutting text into words happens before.
import { OptionError, TokenizerError } from '../../base/errors.js'
import { sharedNumbers } from '../../base/sharedMemory.js'
import { byteCharacters } from './byteCharacters.js'
import { Utf8Buffer } from './utf8Buffer.js'
import { findWholeWord, type WholeWords } from './wholeWords.js'

const CACHED_WORD_LENGTH = 32
const CACHED_WORDS = 50_000
const SHORT_WORD = 48 // bytes: the best pair is found faster by looking at all than by keeping a heap
/** Merging needs some thirty bytes of memory for each byte of a word, and no language has words of this length. */
const MAX_WORD_BYTES = 4 * 2 ** 20

export interface BytePairTables {
  readonly byteIds: Int32Array // [256] the token of each byte
  readonly firsts: Int32Array // [slots] open addressing by pair; -1 is empty
  readonly seconds: Int32Array // [slots]
  readonly ranks: Int32Array // [slots]
  readonly mergedIds: Int32Array // [merges]
}

export function buildBytePairTables(
  vocabulary: ReadonlyMap<string, number>,
  merges: readonly unknown[],
): BytePairTables {
  const slots = 2 ** Math.ceil(Math.log2(Math.max(16, merges.length * 2)))
  const tables: BytePairTables = {
    byteIds: sharedNumbers(256),
    firsts: sharedNumbers(slots).fill(-1),
    seconds: sharedNumbers(slots),
    ranks: sharedNumbers(slots),
    mergedIds: sharedNumbers(merges.length),
  }
  byteCharacters().forEach((character, byte) => {
    const id = vocabulary.get(character)
    if (id === undefined) throw new TokenizerError(`tokenizer.json: the vocabulary lacks the byte '${character}'`)
    tables.byteIds[byte] = id
  })
  merges.forEach((merge, rank) => {
    const parts = typeof merge === 'string' ? merge.split(' ') : merge
    if (!Array.isArray(parts) || parts.length !== 2) {
      throw new TokenizerError(`tokenizer.json: merge ${rank} is ${JSON.stringify(merge)}, want two tokens`)
    }
    const first = vocabulary.get(parts[0])
    const second = vocabulary.get(parts[1])
    const merged = vocabulary.get(`${parts[0]}${parts[1]}`)
    if (first === undefined || second === undefined || merged === undefined) {
      throw new TokenizerError(`tokenizer.json: merge ${rank} ${JSON.stringify(parts)} names tokens that do not exist`)
    }
    let slot = slotOf(first, second, slots - 1)
    while (tables.firsts[slot] !== -1) slot = (slot + 1) & (slots - 1)
    tables.firsts[slot] = first
    tables.seconds[slot] = second
    tables.ranks[slot] = rank
    tables.mergedIds[rank] = merged
  })
  return tables
}

function slotOf(first: number, second: number, mask: number): number {
  const hash = Math.imul(first, 0x9e3779b1) ^ Math.imul(second, 0x85ebca6b)
  return (hash ^ (hash >>> 15)) & mask
}

export class BytePairs {
  private readonly cache = new Map<string, readonly number[]>()
  private readonly utf8 = new Utf8Buffer()
  private readonly shortIds = new Int32Array(SHORT_WORD)
  private readonly shortRanks = new Int32Array(SHORT_WORD)

  constructor(
    private readonly tables: BytePairTables,
    /** Words that are tokens as they are, whatever merging would give (tokenizer.json's ignore_merges). */
    private readonly wholeWords: WholeWords | null,
  ) {}

  /** Ids of one word. `isText`: the word is text; else it is in byte characters. */
  encode(word: string, isText: boolean): readonly number[] {
    const known = this.cache.get(word)
    if (known !== undefined) return known
    const ids = this.merge(word, isText)
    if (word.length > CACHED_WORD_LENGTH) return ids
    if (this.cache.size >= CACHED_WORDS) this.cache.clear()
    this.cache.set(ownCopy(word), ids)
    return ids
  }

  private merge(word: string, isText: boolean): readonly number[] {
    const { utf8 } = this
    checkLength(word.length)
    if (isText) utf8.setText(word)
    else utf8.setByteCharacters(word)
    checkLength(utf8.length)
    const whole = this.wholeWords === null ? -1 : findWholeWord(this.wholeWords, utf8.bytes, utf8.length)
    if (whole >= 0) return [whole]
    return utf8.length <= SHORT_WORD
      ? this.mergeShort(utf8.bytes, utf8.length)
      : this.mergeLong(utf8.bytes, utf8.length)
  }

  /** The rank of a pair; lower ones are merged first. No pair: a number past all ranks. */
  private rankOf(first: number, second: number): number {
    const { firsts, seconds, ranks } = this.tables
    const mask = firsts.length - 1
    let slot = slotOf(first, second, mask)
    while (firsts[slot] !== -1) {
      if (firsts[slot] === first && seconds[slot] === second) return ranks[slot]
      slot = (slot + 1) & mask
    }
    return NO_RANK
  }

  private mergeShort(bytes: Uint8Array, length: number): number[] {
    const { shortIds: ids, shortRanks: ranks } = this
    const { byteIds, mergedIds } = this.tables
    let count = length
    for (let i = 0; i < count; i++) ids[i] = byteIds[bytes[i]]
    for (let i = 0; i + 1 < count; i++) ranks[i] = this.rankOf(ids[i], ids[i + 1])
    while (count > 1) {
      let best = 0
      for (let i = 1; i + 1 < count; i++) if (ranks[i] < ranks[best]) best = i
      const rank = ranks[best]
      if (rank === NO_RANK) break
      ids[best] = mergedIds[rank]
      count--
      for (let i = best + 1; i < count; i++) {
        ids[i] = ids[i + 1]
        ranks[i] = ranks[i + 1]
      }
      if (best > 0) ranks[best - 1] = this.rankOf(ids[best - 1], ids[best])
      if (best + 1 < count) ranks[best] = this.rankOf(ids[best], ids[best + 1])
    }
    const result: number[] = []
    for (let i = 0; i < count; i++) result.push(ids[i])
    return result
  }

  private mergeLong(bytes: Uint8Array, count: number): number[] {
    const { byteIds, mergedIds } = this.tables
    // A linked list of symbols; pairRanks[i] is the rank of the pair that starts at i, so that stale heap entries show.
    const ids = new Int32Array(count)
    const next = new Int32Array(count)
    const previous = new Int32Array(count)
    const pairRanks = new Int32Array(count).fill(NO_RANK)
    const heap = new MergeHeap(count)
    for (let i = 0; i < count; i++) {
      ids[i] = byteIds[bytes[i]]
      next[i] = i + 1
      previous[i] = i - 1
    }
    const consider = (at: number) => {
      const rank = next[at] < count ? this.rankOf(ids[at], ids[next[at]]) : NO_RANK
      pairRanks[at] = rank
      if (rank !== NO_RANK) heap.push(rank, at)
    }
    for (let i = 0; i + 1 < count; i++) consider(i)
    while (heap.size > 0) {
      const key = heap.pop()
      const rank = Math.floor(key / POSITIONS)
      const at = key - rank * POSITIONS
      if (pairRanks[at] !== rank) continue
      const gone = next[at]
      ids[at] = mergedIds[rank]
      pairRanks[gone] = NO_RANK
      next[at] = next[gone]
      if (next[gone] < count) previous[next[gone]] = at
      consider(at)
      if (previous[at] >= 0) consider(previous[at])
    }
    const result: number[] = []
    for (let i = 0; i < count; i = next[i]) result.push(ids[i])
    return result
  }
}

const NO_RANK = 0x7fffffff
const POSITIONS = 2 ** 30

/** A binary heap of (rank, position), lowest rank first, then leftmost: one float64 each. */
class MergeHeap {
  size = 0
  private keys: Float64Array

  constructor(capacity: number) {
    this.keys = new Float64Array(Math.max(4, capacity))
  }

  push(rank: number, at: number): void {
    if (this.size === this.keys.length) {
      const grown = new Float64Array(this.keys.length * 2)
      grown.set(this.keys)
      this.keys = grown
    }
    const keys = this.keys
    const key = rank * POSITIONS + at
    let i = this.size++
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (keys[parent] <= key) break
      keys[i] = keys[parent]
      i = parent
    }
    keys[i] = key
  }

  /** rank * POSITIONS + position */
  pop(): number {
    const keys = this.keys
    const top = keys[0]
    const last = keys[--this.size]
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= this.size) break
      if (child + 1 < this.size && keys[child + 1] < keys[child]) child++
      if (keys[child] >= last) break
      keys[i] = keys[child]
      i = child
    }
    keys[i] = last
    return top
  }
}

function checkLength(bytes: number): void {
  if (bytes > MAX_WORD_BYTES) {
    throw new OptionError('prompt', `a word of ${bytes} bytes`, `words of at most ${MAX_WORD_BYTES}`)
  }
}

/** A word cut out of a text keeps the whole text in memory; the cache must not. */
function ownCopy(word: string): string {
  const codes: number[] = []
  for (let i = 0; i < word.length; i++) codes.push(word.charCodeAt(i))
  return String.fromCharCode(...codes)
}
