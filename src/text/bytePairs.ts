// Byte-pair merging over token ids. The library's own merge loop builds a string and a JSON key per candidate pair, so
// that one word of a megabyte blocks its thread for seconds; this one works on integers, gives the same ids, and needs
// n log n steps for a word of n bytes. Knows only words: cutting text into words happens before.
import { TokenizerError } from '../errors.js'

const CACHED_WORD_LENGTH = 64
const CACHED_WORDS = 50_000

/** The 256 characters that byte-level vocabularies write bytes with: printable ones as they are, others from U+0100. */
export function byteCharacters(): string[] {
  const characters: string[] = []
  let next = 256
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
    characters.push(String.fromCharCode(printable ? byte : next++))
  }
  return characters
}

export class BytePairs {
  private readonly initialIds = new Int32Array(512).fill(-1) // by character code
  private readonly tableA: Int32Array // open addressing; -1 is empty
  private readonly tableB: Int32Array
  private readonly tableRank: Int32Array
  private readonly mergedIds: Int32Array // [merges]
  private readonly tableMask: number
  private readonly cache = new Map<string, readonly number[]>()

  constructor(
    private readonly vocabulary: ReadonlyMap<string, number>,
    merges: readonly unknown[],
    private readonly wholeWordsFirst: boolean, // tokenizer.json's ignore_merges
  ) {
    for (const character of byteCharacters()) {
      const id = vocabulary.get(character)
      if (id === undefined) throw new TokenizerError(`tokenizer.json: the vocabulary lacks the byte '${character}'`)
      this.initialIds[character.charCodeAt(0)] = id
    }
    const size = 2 ** Math.ceil(Math.log2(Math.max(16, merges.length * 2)))
    this.tableMask = size - 1
    this.tableA = new Int32Array(size).fill(-1)
    this.tableB = new Int32Array(size)
    this.tableRank = new Int32Array(size)
    this.mergedIds = new Int32Array(merges.length)
    merges.forEach((merge, rank) => {
      this.addMerge(merge, rank)
    })
  }

  /** Ids of one word, given in byte characters. */
  encode(word: string): readonly number[] {
    const known = this.cache.get(word)
    if (known !== undefined) return known
    const ids = this.merge(word)
    if (word.length <= CACHED_WORD_LENGTH) {
      if (this.cache.size >= CACHED_WORDS) this.cache.clear()
      this.cache.set(word, ids)
    }
    return ids
  }

  private addMerge(merge: unknown, rank: number): void {
    const parts = typeof merge === 'string' ? merge.split(' ') : merge
    if (!Array.isArray(parts) || parts.length !== 2) {
      throw new TokenizerError(`tokenizer.json: merge ${rank} is ${JSON.stringify(merge)}, want two tokens`)
    }
    const a = this.vocabulary.get(parts[0])
    const b = this.vocabulary.get(parts[1])
    const merged = this.vocabulary.get(`${parts[0]}${parts[1]}`)
    if (a === undefined || b === undefined || merged === undefined) {
      throw new TokenizerError(`tokenizer.json: merge ${rank} ${JSON.stringify(parts)} names tokens that do not exist`)
    }
    let slot = this.slotOf(a, b)
    while (this.tableA[slot] !== -1) slot = (slot + 1) & this.tableMask
    this.tableA[slot] = a
    this.tableB[slot] = b
    this.tableRank[slot] = rank
    this.mergedIds[rank] = merged
  }

  private slotOf(a: number, b: number): number {
    const hash = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b)
    return (hash ^ (hash >>> 15)) & this.tableMask
  }

  private rankOf(a: number, b: number): number {
    let slot = this.slotOf(a, b)
    while (this.tableA[slot] !== -1) {
      if (this.tableA[slot] === a && this.tableB[slot] === b) return this.tableRank[slot]
      slot = (slot + 1) & this.tableMask
    }
    return -1
  }

  private merge(word: string): number[] {
    if (this.wholeWordsFirst) {
      const whole = this.vocabulary.get(word)
      if (whole !== undefined) return [whole]
    }
    const count = word.length
    const ids = new Int32Array(count)
    for (let i = 0; i < count; i++) {
      const code = word.charCodeAt(i)
      const id = code < 512 ? this.initialIds[code] : -1
      if (id < 0) throw new TokenizerError(`tokenizer.json: the pre-tokenizer gave '${word[i]}', which is not a byte`)
      ids[i] = id
    }
    if (count === 1) return [ids[0]]

    // A linked list of symbols; pairRanks[i] is the rank of the pair that starts at i, so that stale heap entries show.
    const next = new Int32Array(count)
    const previous = new Int32Array(count)
    const pairRanks = new Int32Array(count).fill(-1)
    const heap = new MergeHeap(count)
    for (let i = 0; i < count; i++) {
      next[i] = i + 1
      previous[i] = i - 1
    }
    const consider = (at: number) => {
      const rank = next[at] < count ? this.rankOf(ids[at], ids[next[at]]) : -1
      pairRanks[at] = rank
      if (rank >= 0) heap.push(rank, at)
    }
    for (let i = 0; i + 1 < count; i++) consider(i)
    while (heap.size > 0) {
      const { rank, at } = heap.pop()
      if (pairRanks[at] !== rank) continue
      const gone = next[at]
      ids[at] = this.mergedIds[rank]
      pairRanks[gone] = -1
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

  pop(): { rank: number; at: number } {
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
    const rank = Math.floor(top / POSITIONS)
    return { rank, at: top - rank * POSITIONS }
  }
}
