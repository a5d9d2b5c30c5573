// Who wrote which part of a text that a chat template made. Only what the template itself wrote may be a control token;
// what callers wrote must stay text, also where the template puts their words next to its own and together they spell
// one (`'<' + key + '>'`). Strings of unknown origin count as the caller's: forgetting can only make tokens text.

/** From the least trusted up. `trusted`: system prompt and the model's own words, where `<think>` may be meant. */
export enum Origin {
  client = 0,
  trusted = 1,
  template = 2,
}

export interface Piece {
  readonly length: number
  readonly origin: Origin
}

const known = new WeakMap<object, readonly Piece[]>() // by the interpreter's value objects

/** The pieces of a string value of the interpreter. */
export function piecesOf(value: object, length: number): readonly Piece[] {
  return known.get(value) ?? [{ length, origin: Origin.client }]
}

export function isNoted(value: object): boolean {
  return known.has(value)
}

/** Says what a value's pieces are; they must add up to its length. */
export function notePieces<T extends object>(value: T, pieces: readonly Piece[]): T {
  known.set(value, pieces)
  return value
}

/** The least trusted of all pieces. */
export function weakestOrigin(pieces: readonly Piece[]): Origin {
  return pieces.reduce((weakest, piece) => Math.min(weakest, piece.origin), Origin.template)
}

/** Adds pieces at the end; neighbours of one origin become one. */
export function appendPieces(pieces: Piece[], more: readonly Piece[]): void {
  for (const piece of more) {
    const last = pieces.at(-1)
    if (piece.length === 0) continue
    if (last?.origin === piece.origin) {
      pieces[pieces.length - 1] = { length: last.length + piece.length, origin: last.origin }
    } else pieces.push(piece)
  }
}

/** The pieces of a part of a text. */
export function slicePieces(pieces: readonly Piece[], start: number, length: number): Piece[] {
  const slice: Piece[] = []
  let at = 0
  for (const { length: size, origin } of pieces) {
    const from = Math.max(at, start)
    const to = Math.min(at + size, start + length)
    if (to > from) slice.push({ length: to - from, origin })
    at += size
  }
  return slice
}

/** Tells the weakest origin within ranges that are asked for from left to right. */
export class OriginReader {
  private index = 0
  private start = 0 // of the piece at `index`

  constructor(private readonly pieces: readonly Piece[]) {}

  weakest(from: number, to: number): Origin {
    const { pieces } = this
    while (this.index < pieces.length && this.start + pieces[this.index].length <= from) {
      this.start += pieces[this.index++].length
    }
    let weakest = Origin.template
    let start = this.start
    for (let i = this.index; i < pieces.length && start < to; i++) {
      weakest = Math.min(weakest, pieces[i].origin)
      start += pieces[i].length
    }
    return weakest
  }
}
