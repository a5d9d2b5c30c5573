// Tokens inside of a grammar. A dialect's tags may be tokens of their own, and a model that was trained on them should not be
// made to spell them out. Such a token stands in the vocabulary as bytes that are no UTF-8, so that no text of a
// grammar ever matches it by chance.

/** The number of each. */
export type Marks = Readonly<Record<string, number>>

const LEAD = 0xff // never part of UTF-8
const FIRST = 0xc0 // from here on GPT-2's byte-level alphabet writes a byte as the character of its number

export function markBytes(index: number): number[] {
  return [LEAD, FIRST + index]
}

/** A mark in the byte-level alphabet. */
export function markPiece(index: number): string {
  return String.fromCharCode(...markBytes(index))
}

/** Vocabularies have a token for each single byte: one that could be taken for a mark must never come. */
export function looksLikeMark(piece: string): boolean {
  return piece.includes(String.fromCharCode(LEAD))
}

/** The marks in a text as numbers, and the text between them. */
export function splitAtMarks(text: string, marks: Marks): (string | number)[] {
  const parts: (string | number)[] = []
  let from = 0
  for (let at = 0; at < text.length; ) {
    const mark = Object.keys(marks).find(candidate => text.startsWith(candidate, at))
    if (mark === undefined) {
      at++
      continue
    }
    if (at > from) parts.push(text.slice(from, at))
    parts.push(marks[mark])
    from = at += mark.length
  }
  if (from < text.length) parts.push(text.slice(from))
  return parts
}
