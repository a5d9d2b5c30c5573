// How an answer looks at a terminal: Markdown in colours, lines broken between words.
import type { AnswerStyler } from '../printAnswer.js'
import { colours } from '../terminal.js'
import { MarkdownStyler } from './markdownStyler.js'
import { WordWrapper } from './wordWrapper.js'

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
