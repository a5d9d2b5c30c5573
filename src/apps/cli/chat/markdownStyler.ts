// Markdown as it streams, for a terminal: headings and **bold** are bold, `code` and fenced blocks are coloured, bullets
// are dots; everything else is left as it is. Goes character by character, so that it does not matter how an answer is
// cut; a run of markers is held back until the character after it is known.

const BOLD = ['\u001b[1m', '\u001b[22m'] as const
const CODE = ['\u001b[36m', '\u001b[39m'] as const

interface MarkerRun {
  readonly marker: string
  readonly atLineStart: boolean
  readonly afterSpace: boolean
  count: number
}

export class MarkdownStyler {
  private run: MarkerRun | null = null
  private atLineStart = true
  private afterSpace = true
  private bold = false // by ** or a heading
  private code = false
  private fence = false
  private skipSpace = false // after the marks of a heading
  private skipLine = false // the rest of a fence's line is the name of a language

  /** In a block of code. */
  get isInFence(): boolean {
    return this.fence
  }

  push(text: string): string {
    let out = ''
    for (const character of text) out += this.character(character)
    return out
  }

  /** What was held back, and an end to every style. */
  end(): string {
    const out = this.endRun('\n') + this.endLine() + (this.fence ? CODE[1] : '')
    this.fence = false
    return out
  }

  private character(character: string): string {
    if (this.run?.marker === character) {
      this.run.count++
      return ''
    }
    let out = this.endRun(character)
    if (this.skipLine) {
      if (character !== '\n') return out
      this.skipLine = false
      this.atLineStart = true
      return out
    }
    if (this.skipSpace) {
      this.skipSpace = false
      return out
    }
    if (this.isMarker(character)) {
      this.run = { marker: character, atLineStart: this.atLineStart, afterSpace: this.afterSpace, count: 1 }
      return out
    }
    if (character === '\n') out += this.endLine()
    this.afterSpace = /\s/.test(character)
    this.atLineStart = character === '\n' || (this.atLineStart && this.afterSpace)
    return out + character
  }

  private isMarker(character: string): boolean {
    if (character === '`') return !this.fence || this.atLineStart
    if (this.fence || this.code) return false
    return character === '*' || (this.atLineStart && (character === '#' || character === '-'))
  }

  /** Decides what a run of markers is, now that the character after it is known. */
  private endRun(next: string): string {
    const { run } = this
    if (run === null) return ''
    this.run = null
    const { marker, count, atLineStart, afterSpace } = run
    const literal = marker.repeat(count)
    this.atLineStart = false
    this.afterSpace = false
    if (marker === '`' && count >= 3 && atLineStart) {
      this.fence = !this.fence
      this.skipLine = true
      return CODE[this.fence ? 0 : 1]
    }
    if (this.fence) return literal
    if (marker === '`' && count === 1) {
      this.code = !this.code
      return CODE[this.code ? 0 : 1]
    }
    if (marker === '*' && count === 2 && (this.bold ? !afterSpace : !/\s/.test(next))) {
      this.bold = !this.bold
      return BOLD[this.bold ? 0 : 1]
    }
    if (atLineStart && next === ' ') {
      if (marker === '#' && count <= 6) {
        this.bold = true
        this.skipSpace = true
        return BOLD[0]
      }
      if (marker !== '`' && count === 1) return '•'
    }
    return literal
  }

  /** Styles within a line end with it. */
  private endLine(): string {
    const out = (this.bold ? BOLD[1] : '') + (this.code ? CODE[1] : '')
    this.bold = false
    this.code = false
    return out
  }
}
