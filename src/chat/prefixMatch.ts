// Which kept state a new prompt can go on from: the longest one whose tokens begin the prompt. Pure: token ids and keys,
// no states. A key is a hash of a prefix, so that many kept states are looked up in one pass over the prompt; equal keys
// are confirmed token by token.

/** Hash of a growing prefix: two 32-bit lanes. */
export class PrefixHash {
  private high = 0x811c9dc5
  private low = 0x9e3779b9

  push(token: number): void {
    this.high = Math.imul(this.high ^ token, 0x01000193)
    this.high = (this.high << 13) | (this.high >>> 19)
    this.low = Math.imul(this.low ^ (token + 0x7f4a7c15), 0x85ebca6b)
    this.low ^= this.low >>> 15
  }

  /** 16 hexadecimal digits. */
  get key(): string {
    const hex = (value: number) => (value >>> 0).toString(16).padStart(8, '0')
    return hex(this.high) + hex(this.low)
  }
}

export function prefixKey(tokens: readonly number[], length = tokens.length): string {
  const hash = new PrefixHash()
  for (let i = 0; i < length; i++) hash.push(tokens[i])
  return hash.key
}

export interface Prefix {
  readonly length: number
  readonly key: string
}

/** Those of `known` that may begin `tokens`, longest first. */
export function matchingPrefixes<T extends Prefix>(tokens: readonly number[], known: Iterable<T>): T[] {
  const byLength = new Map<number, T[]>()
  for (const prefix of known) {
    if (prefix.length > tokens.length) continue
    const same = byLength.get(prefix.length)
    if (same) same.push(prefix)
    else byLength.set(prefix.length, [prefix])
  }
  const hash = new PrefixHash()
  const found: T[] = []
  let done = 0
  for (const length of [...byLength.keys()].sort((a, b) => a - b)) {
    while (done < length) hash.push(tokens[done++])
    const { key } = hash
    found.push(...(byLength.get(length) as T[]).filter(prefix => prefix.key === key))
  }
  return found.reverse()
}

/** How many tokens two sequences have in common from the start. */
export function commonPrefix(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const end = Math.min(a.length, b.length)
  let length = 0
  while (length < end && a[length] === b[length]) length++
  return length
}
