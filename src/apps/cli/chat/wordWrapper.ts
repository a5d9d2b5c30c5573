// Breaks the lines of an answer between words while it streams: a terminal alone would break them anywhere. A word is held
// back until its end is known. Colours take no room; wide characters, as of Chinese, take two columns and may begin a line.
// What is shown as it is (a block of code) is left alone: whoever copies it wants its own lines.
import type { AnswerStyler } from '../printAnswer.js'
import { colours } from '../terminal.js'
import { MarkdownStyler } from './markdownStyler.js'

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
const SEQUENCE = /^\u001b\[[\d;?]*[a-zA-Z]/
/** The last column stays free: some terminals go on to the next line with it. */
const MARGIN = 1

export class WordWrapper {
  private column = 0
  private blanks = '' // before the word
  private word = ''
  private wordWidth = 0

  /** `columns` is asked at each line: windows change. */
  constructor(private readonly columns: () => number) {}

  push(text: string, asItIs = false): string {
    let out = ''
    for (let at = 0; at < text.length; ) {
      const sequence = text[at] === '\u001b' ? (SEQUENCE.exec(text.slice(at))?.[0] ?? '\u001b') : null
      const piece = sequence ?? String.fromCodePoint(text.codePointAt(at) ?? 0)
      at += piece.length
      if (sequence !== null) this.word += sequence
      else out += this.character(piece, asItIs)
    }
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
    if (character === ' ' && !asItIs) {
      const out = this.endWord()
      this.blanks += ' '
      return out
    }
    const width = widthOf(character)
    const out = width > 1 ? this.endWord() : ''
    this.word += character
    this.wordWidth += width
    if (asItIs) return out
    return width > 1 ? out + this.endWord() : out
  }

  private endWord(mayBreak = true): string {
    const { word, wordWidth, blanks } = this
    this.word = ''
    this.wordWidth = 0
    if (word === '') return ''
    this.blanks = ''
    const room = Math.max(1, this.columns() - MARGIN)
    const isBroken = mayBreak && this.column > 0 && this.column + blanks.length + wordWidth > room && wordWidth > 0
    this.column = isBroken ? wordWidth : this.column + blanks.length + wordWidth
    // A word longer than a line is broken by the terminal, and goes on in the last of its lines.
    if (this.column > room) this.column %= this.columns()
    return isBroken ? `\n${word}` : blanks + word
  }
}

/** Columns that a character takes: letters of East Asia and pictures two, marks on letters none. */
function widthOf(character: string): number {
  const code = character.codePointAt(0) ?? 0
  if (/^[\p{Mn}\p{Me}\p{Cf}]$/u.test(character)) return 0
  const isWide =
    (code >= 0x1100 && code <= 0x115f) ||
    (code >= 0x2e80 && code <= 0xa4cf) ||
    (code >= 0xac00 && code <= 0xd7a3) ||
    (code >= 0xf900 && code <= 0xfaff) ||
    (code >= 0xfe30 && code <= 0xfe6f) ||
    (code >= 0xff00 && code <= 0xff60) ||
    (code >= 0x1f300 && code <= 0x1faff) ||
    (code >= 0x20000 && code <= 0x3fffd)
  return isWide ? 2 : 1
}

// How an answer looks at a terminal: Markdown in colours, lines broken between words.

/** Null where stdout is no terminal: the answer goes there as it is. */
export function answerStyle(): AnswerStyler | null {
  if (!process.stdout.isTTY) return null
  const wrapper = new WordWrapper(() => process.stdout.columns)
  const styler = colours(process.stdout) ? new MarkdownStyler() : null
  return {
    push(text) {
      if (styler === null) return wrapper.push(text)
      // One by one: whether a character is of a block of code is known when it has been styled.
      let out = ''
      for (const character of text) out += wrapper.push(styler.push(character), styler.isInFence)
      return out
    },
    end: () => wrapper.push(styler?.end() ?? '') + wrapper.end(),
  }
}
