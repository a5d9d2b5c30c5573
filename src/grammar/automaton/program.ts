// A grammar as flat arrays, ready to be walked: this is what the thread that drafts grammars hands to the one that matches
// them, at the price of a copy. Nodes refer to each other by number, so that what is used twice exists once and
// recursion is a number that comes up again.

export const NodeKind = {
  empty: 0, // matches the empty text
  literal: 1, // first, second: its bytes, from and up to
  charClass: 2, // first: the state of a byte automaton in `lists`, see byteAutomaton.ts
  sequence: 3, // first, second: its items in `lists`, from and up to
  choice: 4, // the same for its options; none: matches nothing
  repeat: 5, // first: the item; second, third: least and most times
  rule: 6, // first: the node that it stands for; in drafts alone
} as const

/** The most that is counted: of repetitions, lengths, items. */
export const MAX_REPEAT = 1_000_000

/** As often as one likes. Also a number that does not get less when one is taken away. */
export const UNBOUNDED = 2 ** 30 - 1

export interface Program {
  readonly kinds: Uint8Array // [nodes], each before those that a text of it may begin with
  readonly nullable: Uint8Array // [nodes]: 1 where the empty text matches
  readonly first: Int32Array // [nodes], by kind; so are second and third
  readonly second: Int32Array
  readonly third: Int32Array
  readonly lists: Int32Array
  readonly bytes: Uint8Array
  readonly root: number
}

/** A grammar as it grows. Its first two nodes match the empty text, and nothing. */
export interface Draft {
  readonly kinds: number[]
  readonly first: number[]
  readonly second: number[]
  readonly third: number[]
  readonly lists: number[]
  readonly bytes: number[]
}

export const EMPTY_NODE = 0
export const NEVER_NODE = 1

export function programBytes({ kinds, lists, bytes }: Program): number {
  return kinds.length * 14 + lists.byteLength + bytes.byteLength
}

/** The memory of a program, to be handed over with a message. */
export function programBuffers(program: Program): ArrayBuffer[] {
  const { kinds, nullable, first, second, third, lists, bytes } = program
  return [kinds, nullable, first, second, third, lists, bytes].map(array => array.buffer as ArrayBuffer)
}
