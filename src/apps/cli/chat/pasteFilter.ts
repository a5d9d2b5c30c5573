// Makes one line of what a terminal sends for several: newlines inside a bracketed paste and Alt-Enter become a visible
// mark that the line editor treats as any character. `joinedLines` turns the marks back into newlines.

export const NEWLINE_MARK = '⏎'
export const PASTE_ON = '\u001b[?2004h'
export const PASTE_OFF = '\u001b[?2004l'

const PASTE_START = '\u001b[200~'
const PASTE_END = '\u001b[201~'
const ALT_ENTER = ['\u001b\r', '\u001b\n']

export function joinedLines(line: string): string {
  return line.replaceAll(NEWLINE_MARK, '\n')
}

export class PasteFilter {
  private pasting = false
  private held = '' // the beginning of a marker, perhaps

  /** The text that the line editor should see now. */
  push(text: string): string {
    let rest = this.held + text
    this.held = ''
    let out = ''
    while (rest !== '') {
      if (this.pasting) {
        const end = rest.indexOf(PASTE_END)
        const certain = end >= 0 ? end : rest.length - partialEnd(rest, PASTE_END)
        out += pasted(rest.slice(0, certain))
        rest = rest.slice(certain)
        if (end >= 0) {
          rest = rest.slice(PASTE_END.length)
          this.pasting = false
        } else {
          this.held = rest
          return out
        }
      } else {
        const start = rest.indexOf(PASTE_START)
        const certain = start >= 0 ? start : rest.length - partialEnd(rest, PASTE_START)
        out += typed(rest.slice(0, certain))
        rest = rest.slice(certain)
        if (start >= 0) {
          rest = rest.slice(PASTE_START.length)
          this.pasting = true
        } else {
          this.held = rest
          return out
        }
      }
    }
    return out
  }

  /** Nothing followed: what was held back is a key of its own, such as Escape. */
  flush(): string {
    const held = this.held
    this.held = ''
    return this.pasting ? pasted(held) : typed(held)
  }

  get isHolding(): boolean {
    return this.held !== ''
  }
}

/** Control characters of a paste must not act as keys. */
function pasted(text: string): string {
  let out = ''
  for (const character of text.replace(/\r\n?/g, '\n')) {
    if (character === '\n') out += NEWLINE_MARK
    else if (character === '\t') out += '  '
    else if (character >= ' ' && character !== '\u007f') out += character
  }
  return out
}

function typed(text: string): string {
  // Ctrl-D that was typed while the terminal was in its ordinary mode arrives as NUL.
  let out = text.replaceAll('\u0000', '\u0004')
  for (const keys of ALT_ENTER) out = out.replaceAll(keys, NEWLINE_MARK)
  return out
}

/** Length of the longest end of `text` that is a proper beginning of `marker`. */
function partialEnd(text: string, marker: string): number {
  for (let length = Math.min(text.length, marker.length - 1); length > 0; length--) {
    if (marker.startsWith(text.slice(text.length - length))) return length
  }
  return 0
}
