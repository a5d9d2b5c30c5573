// The tokens that stand beside the vocabulary: found in text as they are written, before anything is cut or merged.

export interface AddedToken {
  readonly id: number
  readonly text: string
  /** Control tokens (`<|im_end|>`) are special; `<think>` and `<tool_call>` are not. */
  readonly special: boolean
}

export class AddedTokens {
  private readonly byText = new Map<string, AddedToken>()
  private readonly pattern: RegExp | null

  constructor(tokens: readonly AddedToken[]) {
    for (const token of tokens) this.byText.set(token.text, token)
    const longestFirst = [...this.byText.keys()].sort((a, b) => b.length - a.length)
    this.pattern = longestFirst.length > 0 ? new RegExp(longestFirst.map(escapeRegExp).join('|'), 'g') : null
  }

  get(text: string): AddedToken | null {
    return this.byText.get(text) ?? null
  }

  /** From left to right; of those that begin at one place, the longest. With `mark` inside, or right behind, it is none. */
  *find(text: string, mark = ''): Generator<FoundToken> {
    for (let found = this.next(text, 0); found !== null; found = this.next(text, found.end)) {
      if (mark === '' || !text.startsWith(mark, found.end)) yield found
    }
  }

  /** Puts `mark` into those that `isForged` picks, so that an encoder that is told of the mark leaves them text. */
  protect(text: string, mark: string, isForged: (found: FoundToken) => boolean): MarkedText {
    const cuts: number[] = []
    const parts: string[] = []
    let done = 0
    let from = 0
    for (let found = this.next(text, 0); found !== null; found = this.next(text, from)) {
      from = found.end
      if (!isForged(found)) continue
      // Another one may begin inside of what is none.
      from = found.at + (text.codePointAt(found.at)! > 0xffff ? 2 : 1)
      parts.push(text.slice(done, from))
      cuts.push(from)
      done = from
    }
    parts.push(text.slice(done))
    return { text: parts.join(mark), offset: offset => offset + cuts.filter(cut => cut < offset).length }
  }

  private next(text: string, from: number): FoundToken | null {
    if (this.pattern === null) return null
    this.pattern.lastIndex = from
    const match = this.pattern.exec(text)
    if (match === null) return null
    return { at: match.index, end: match.index + match[0].length, token: this.byText.get(match[0])! }
  }
}

export interface FoundToken {
  readonly at: number
  readonly end: number
  readonly token: AddedToken
}

export interface MarkedText {
  readonly text: string
  /** Where a place of the text is now. */
  offset(offset: number): number
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
}
