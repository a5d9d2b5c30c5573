// The vocabulary as a tree of bytes: tokens that begin alike share a path, so that one walk through it tries them all. The
// tree lies flat in the order of a walk from left to right; each node knows where the walk goes on when it is skipped, and
// which tokens are below it. Inside of a free text nearly all tokens may come: where a state stays what it is for all bytes
// below a node, these are taken without being walked.

/** The bytes of all tokens, one after the other. Tokens that may never come have none. */
export interface VocabularyBytes {
  readonly bytes: Uint8Array
  readonly ends: Uint32Array // [tokens]: where each token's bytes end
  readonly vocabSize: number
  readonly stopTokenIds: readonly number[]
}

/** An automaton over bytes. State 0 is the one without a way on. */
export interface ByteWalk {
  /** Where each byte leads, as far as known; -1: ask `step`. */
  row(state: number): Int32Array
  step(state: number, byte: number): number
}

/** A byte belongs to the first group that has it. */
const GROUPS: readonly (readonly [first: number, last: number])[] = [
  [0x61, 0x7a], // a to z
  [0x41, 0x5a], // A to Z
  [0x30, 0x39], // digits
  [0x20, 0x20], // space
  [0x22, 0x22], // quote
  [0x5c, 0x5c], // backslash
  [0x3c, 0x3c], // <
  [0x00, 0x1f], // control characters
  [0x00, 0x7f], // the rest of ASCII
  [0x80, 0xff], // all beyond
]
const BYTE_GROUPS = byteGroups()
const GROUP_BYTES = groupBytes(BYTE_GROUPS)

export class TokenTrie {
  readonly longest: number // bytes of the longest token
  private readonly tokens: Int32Array // in the order of the walk
  /** By node, in the order of the walk. */
  private readonly byteOf: Uint8Array
  private readonly depthOf: Uint16Array
  private readonly skipTo: Int32Array // the first node that is not below
  private readonly tokensFrom: Int32Array // [nodes + 1]: the first of `tokens` at or below
  private readonly groupsBelow: Uint16Array // one bit per group of bytes

  constructor({ bytes, ends }: VocabularyBytes) {
    const order = sortedTokens(bytes, ends)
    const most = bytes.length
    this.tokens = Int32Array.from(order)
    this.byteOf = new Uint8Array(most)
    this.depthOf = new Uint16Array(most)
    this.skipTo = new Int32Array(most)
    this.tokensFrom = new Int32Array(most + 1)
    this.groupsBelow = new Uint16Array(most)
    const path: number[] = [] // nodes from the root to the last token
    let count = 0
    let longest = 0
    let last: Uint8Array = new Uint8Array(0)
    const leave = (depth: number) => {
      while (path.length > depth) {
        const node = path.pop()!
        this.skipTo[node] = count
        const parent = path.at(-1)
        if (parent !== undefined) this.groupsBelow[parent] |= this.groupsBelow[node] | BYTE_GROUPS[this.byteOf[node]]
      }
    }
    order.forEach((token, index) => {
      const piece = bytes.subarray(token === 0 ? 0 : ends[token - 1], ends[token])
      let shared = 0
      while (shared < last.length && shared < piece.length && last[shared] === piece[shared]) shared++
      leave(shared)
      for (let depth = shared; depth < piece.length; depth++) {
        path.push(count)
        this.byteOf[count] = piece[depth]
        this.depthOf[count] = depth
        this.tokensFrom[count] = index
        count++
      }
      longest = Math.max(longest, piece.length)
      last = piece
    })
    leave(0)
    this.tokensFrom[count] = order.length
    this.longest = longest
    this.byteOf = this.byteOf.slice(0, count)
    this.depthOf = this.depthOf.slice(0, count)
    this.skipTo = this.skipTo.slice(0, count)
    this.tokensFrom = this.tokensFrom.slice(0, count + 1)
    this.groupsBelow = this.groupsBelow.slice(0, count)
  }

  /** Sets the bit of every token that can be read from `start` on. */
  collect(start: number, walk: ByteWalk, mask: Uint32Array): void {
    const { byteOf, depthOf, skipTo, tokens, tokensFrom, groupsBelow } = this
    const count = byteOf.length
    const known = new Map<number, number>()
    const groupsOf = (state: number): number => {
      let groups = known.get(state)
      if (groups === undefined) known.set(state, (groups = groupsThatStay(state, walk)))
      return groups
    }
    // By depth: the state there, where its bytes lead, the groups that leave it as it is.
    const states = new Int32Array(this.longest + 1)
    const rows: Int32Array[] = [walk.row(start)]
    const staying = new Int32Array(this.longest + 1)
    states[0] = start
    staying[0] = groupsOf(start)
    for (let node = 0; node < count; ) {
      const depth = depthOf[node]
      const byte = byteOf[node]
      let next = rows[depth][byte]
      if (next < 0) next = walk.step(states[depth], byte)
      if (next === 0) {
        node = skipTo[node]
        continue
      }
      let after = node + 1
      if (skipTo[node] !== after) {
        const stays = next === states[depth] ? staying[depth] : groupsOf(next)
        if ((groupsBelow[node] & ~stays) === 0) after = skipTo[node]
        else {
          states[depth + 1] = next
          staying[depth + 1] = stays
          rows[depth + 1] = next === states[depth] ? rows[depth] : walk.row(next)
        }
      }
      // Tokens that end here, or all below where it is skipped.
      for (let i = tokensFrom[node]; i < tokensFrom[after]; i++) mask[tokens[i] >>> 5] |= 1 << (tokens[i] & 31)
      node = after
    }
  }
}

/** The groups of bytes of which each leads from `state` back to it. */
function groupsThatStay(state: number, walk: ByteWalk): number {
  const row = walk.row(state)
  let groups = 0
  for (const [group, bytes] of GROUP_BYTES.entries()) {
    const stays = bytes.every(byte => (row[byte] < 0 ? walk.step(state, byte) : row[byte]) === state)
    if (stays) groups |= 1 << group
  }
  return groups
}

/** Bytes that grammars tell apart as a rule, as one bit each. */
function byteGroups(): Uint16Array {
  const groups = new Uint16Array(256).fill(1 << (GROUPS.length - 1))
  for (const [group, [first, last]] of GROUPS.entries()) {
    for (let byte = first; byte <= last; byte++) groups[byte] = Math.min(groups[byte], 1 << group)
  }
  return groups
}

function groupBytes(groups: Uint16Array): number[][] {
  return GROUPS.map((_, group) => Array.from(groups.keys()).filter(byte => groups[byte] === 1 << group))
}

/** Tokens with bytes, in the order of these. */
function sortedTokens(bytes: Uint8Array, ends: Uint32Array): number[] {
  // One character per byte: strings compare faster than arrays, and in the same order.
  const keys: string[] = []
  const order: number[] = []
  for (let token = 0, from = 0; token < ends.length; from = ends[token++]) {
    keys.push(String.fromCharCode(...bytes.subarray(from, ends[token])))
    if (ends[token] > from) order.push(token)
  }
  return order.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b))
}
