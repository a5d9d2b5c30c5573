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

  /** From left to right; of those that begin at one place, the longest. */
  *find(text: string): Generator<{ at: number; token: AddedToken }> {
    if (this.pattern === null) return
    for (const match of text.matchAll(this.pattern)) yield { at: match.index, token: this.byText.get(match[0])! }
  }

  /** Puts `mark` into those that `isForged` picks, so that an encoder that is told of the mark leaves them text. */
  protect(text: string, mark: string, isForged: (token: AddedToken, at: number) => boolean): string {
    let result = ''
    let done = 0
    for (const { at, token } of this.find(text)) {
      if (!isForged(token, at)) continue
      const cut = at + (token.text.codePointAt(0)! > 0xffff ? 2 : 1)
      result += text.slice(done, cut) + mark
      done = cut
    }
    return result + text.slice(done)
  }
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
}
