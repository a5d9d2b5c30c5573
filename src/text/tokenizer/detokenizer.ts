// Token ids to text, one token at a time. Byte-level tokens may end in the middle of a UTF-8 character: its bytes are
// held back until the character is whole, so that no piece is ever cut inside one. Bytes that can never become a
// character come out as U+FFFD, and all pieces together equal the text of all ids at once.
export interface DetokenizerOptions {
  /** Leave out special tokens (`<|im_end|>`). Default false. */
  readonly skipSpecial?: boolean
}

/** What is asked of a tokenizer. */
export interface TokenTexts {
  isSpecial(id: number): boolean
  tokenBytes(id: number): Uint8Array
}

export class Detokenizer {
  private readonly utf8 = new TextDecoder('utf-8', { ignoreBOM: true })

  constructor(
    private readonly tokenizer: TokenTexts,
    private readonly options: DetokenizerOptions = {},
  ) {}

  /** The text that is certain now; '' while a character is incomplete. */
  push(id: number): string {
    if (this.options.skipSpecial && this.tokenizer.isSpecial(id)) return ''
    return this.utf8.decode(this.tokenizer.tokenBytes(id), { stream: true })
  }

  /** What is left: U+FFFD where the last character never became whole. The detokenizer can then be used anew. */
  end(): string {
    return this.utf8.decode()
  }
}
