// Breaks lines between words while text streams: a terminal alone would break them anywhere. A word is held back until its end is
// known. Colours take no room; letters of East Asia may begin a line. Code is left alone: whoever copies it wants its own lines.
import stringWidth from 'fast-string-width'

/** Letters that need no blank between them. */
const EAST_ASIAN =
  /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff00-\uff60]$/u
/** The last column stays free: some terminals go on to the next line with it. */
const MARGIN = 1

export class WordWrapper {
  private column = 0
  private blanks = '' // before the word
  private word = ''

  /** `columns` is asked at each line: windows change. */
  constructor(private readonly columns: () => number) {}

  push(text: string, asItIs = false): string {
    let out = ''
    for (const character of text) out += this.character(character, asItIs)
    return asItIs ? out + this.endWord(false) : out
  }

  end(): string {
    return this.endWord()
  }

  private character(character: string, asItIs: boolean): string {
    if (character === '\n') {
      const out = this.endWord(!asItIs)
      this.column = 0
      this.blanks = ''
      return `${out}\n`
    }
    if (asItIs) {
      this.word += character
      return ''
    }
    if (character === ' ') {
      const out = this.endWord()
      this.blanks += ' '
      return out
    }
    if (!EAST_ASIAN.test(character)) {
      this.word += character
      return ''
    }
    const out = this.endWord()
    this.word = character
    return out + this.endWord()
  }

  private endWord(mayBreak = true): string {
    const { word, blanks } = this
    this.word = ''
    if (word === '') return ''
    const width = stringWidth(word)
    this.blanks = ''
    const columns = this.columns()
    const room = Math.max(1, columns - MARGIN)
    const isBroken = mayBreak && this.column > 0 && this.column + blanks.length + width > room && width > 0
    this.column = isBroken ? width : this.column + blanks.length + width
    // A word longer than a line is broken by the terminal, and goes on in the last of its lines.
    if (this.column > room) this.column %= columns
    return isBroken ? `\n${word}` : blanks + word
  }
}
