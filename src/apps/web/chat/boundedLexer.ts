// Reads Markdown that may be anything, such as a model that writes the same sign for ever. Signs that open and never close cost the
// square of their number, and quotes in quotes a call each: what no person would write is plain text from there on.
import { Lexer, type Token, type TokensList } from 'marked'

const MAX_DEPTH = 30 // quotes, lists or emphasis inside one another
const MAX_MARKS = 1000 // signs of emphasis, or brackets, in one paragraph
const MAX_WORD = 4000 // characters without a blank

export class BoundedLexer extends Lexer {
  private depth = 0

  override blockTokens(source: string, tokens: Token[] = [], lastParagraphClipped?: boolean): TokensList {
    return this.deeper(tokens, source, () => super.blockTokens(source, tokens, lastParagraphClipped)) as TokensList
  }

  override inlineTokens(source: string, tokens: Token[] = []): Token[] {
    if (isDense(source)) return asText(tokens, source)
    return this.deeper(tokens, source, () => super.inlineTokens(source, tokens))
  }

  private deeper(tokens: Token[], source: string, read: () => Token[]): Token[] {
    if (this.depth >= MAX_DEPTH) return asText(tokens, source)
    this.depth++
    try {
      return read()
    } finally {
      this.depth--
    }
  }
}

function asText(tokens: Token[], source: string): Token[] {
  if (source !== '') tokens.push({ type: 'text', raw: source, text: source, escaped: false })
  return tokens
}

function isDense(source: string): boolean {
  return (
    source.length > MAX_MARKS &&
    (count(source, /[*_]/g) > MAX_MARKS || count(source, /[[\]]/g) > MAX_MARKS || hasLongWord(source))
  )
}

function count(source: string, mark: RegExp): number {
  let found = 0
  for (const _ of source.matchAll(mark)) found++
  return found
}

function hasLongWord(source: string): boolean {
  let start = 0
  for (const { index } of source.matchAll(/\s/g)) {
    if (index - start > MAX_WORD) return true
    start = index + 1
  }
  return source.length - start > MAX_WORD
}
