// Formulas in a model's Markdown: `\(…\)` in a line, `\[…\]` and `$$…$$` set off. A single `$` is money and stays text. Here
// they only become elements that hold their source; mathDrawing.ts typesets them once they are on the page.
import type { MarkedExtension, Tokens } from 'marked'
import { escapeHtml } from './escapeHtml.js'

const MAX_LENGTH = 4000 // characters: what is longer stays text

interface MathToken extends Tokens.Generic {
  readonly text: string // TeX
  readonly isDisplayed: boolean
}

// The first character is looked at before the rest is searched for an end.
const INLINE = new RegExp(String.raw`^\\\(([\s\S]{1,${MAX_LENGTH}}?)\\\)`)
const DISPLAYED = new RegExp(
  String.raw`^(?:\\\[([\s\S]{1,${MAX_LENGTH}}?)\\\]|\$\$(?!\$)([\s\S]{1,${MAX_LENGTH}}?)\$\$)`,
)
// At the beginning of a line, and alone in it: what follows on the same line would be lost to the paragraph.
const BLOCK = new RegExp(String.raw`^ {0,3}${DISPLAYED.source.slice(1)}[ \t]*(?:\n+|$)`)
const BLOCK_START = /(?:^|\n) {0,3}(?=\\\[|\$\$)/

export const mathExtension: MarkedExtension = {
  extensions: [
    {
      name: 'mathBlock',
      level: 'block',
      start(source: string) {
        const match = BLOCK_START.exec(source)
        return match === null ? undefined : match.index + (match[0].startsWith('\n') ? 1 : 0)
      },
      tokenizer: source => tokenOf(BLOCK.exec(source), 'mathBlock', true),
      renderer: token => `${element(token as MathToken, 'div')}\n`,
    },
    {
      name: 'mathInline',
      level: 'inline',
      start: (source: string) => source.match(/\\[([]|\$\$/)?.index,
      tokenizer(source) {
        const displayed = tokenOf(DISPLAYED.exec(source), 'mathInline', true)
        return displayed ?? tokenOf(INLINE.exec(source), 'mathInline', false)
      },
      renderer: token => element(token as MathToken, 'span'),
    },
  ],
}

function tokenOf(match: RegExpExecArray | null, type: string, isDisplayed: boolean): MathToken | undefined {
  const text = (match?.[1] ?? match?.[2] ?? '').trim()
  return match === null || text === '' ? undefined : { type, raw: match[0], text, isDisplayed }
}

/** Until it is typeset, and where that fails, the source is shown. */
function element({ text, isDisplayed }: MathToken, tag: 'div' | 'span'): string {
  return `<${tag} class="math${isDisplayed ? ' displayed' : ''}">${escapeHtml(text)}</${tag}>`
}
