// Markdown of a model to HTML that can do nothing. Three lines of defence: HTML in the text is shown as text, what the
// renderer makes is cut down to a short list of tags and attributes, and the page's CSP allows no foreign script, style or
// image anyway. Images become links: a picture elsewhere would tell someone that the answer was read.
import DOMPurify from 'dompurify'
import { Marked, type Token, type Tokens } from 'marked'
import { BoundedLexer } from './boundedLexer.js'
import { escapeHtml } from './escapeHtml.js'
import { highlight } from './highlight.js'
import { mathExtension } from './math.js'

const SAFE_LINK = /^(https?:|mailto:)/i

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
    image: ({ href, text }: Tokens.Image) => link(href, escapeHtml(text || 'image')),
    link({ href, tokens }: Tokens.Link) {
      return link(href, this.parser.parseInline(tokens))
    },
    code: ({ text, lang }: Tokens.Code) => codeBlock(text, lang ?? ''),
    listitem({ task, tokens }: Tokens.ListItem) {
      return `<li${task ? ' class="task"' : ''}>${this.parser.parse(tokens)}</li>`
    },
    checkbox: ({ checked }: Tokens.Checkbox) =>
      `<span class="box${checked ? ' done' : ''}" role="img" aria-label="${checked ? 'done' : 'to do'}"></span>`,
    table(token: Tokens.Table) {
      const cells = (row: Tokens.TableCell[]) => row.map(cell => this.tablecell(cell)).join('')
      const body = token.rows.map(row => this.tablerow({ text: cells(row) })).join('')
      const head = this.tablerow({ text: cells(token.header) })
      return `<div class="table" tabindex="0" role="region" aria-label="Table"><table><thead>${head}</thead><tbody>${body}</tbody></table></div>`
    },
  },
})
marked.use(mathExtension)

const PURIFY = {
  ALLOWED_TAGS:
    'p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote strong em del s code pre a table thead tbody tr th td div span button'.split(
      ' ',
    ),
  ALLOWED_ATTR: ['href', 'title', 'class', 'start', 'align', 'type', 'rel', 'target', 'tabindex', 'role', 'aria-label'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: SAFE_LINK,
  // Which hold no address, so that they need not look like one.
  ADD_URI_SAFE_ATTR: ['start', 'align', 'type', 'rel', 'target', 'tabindex', 'aria-label'],
}

export interface Block {
  readonly raw: string
  readonly html: string
}

/**
 * The blocks of a text that may still grow: those that `before` had are taken from there, so that a long answer costs
 * no more to draw than its last paragraph.
 */
export function renderBlocks(text: string, before: readonly Block[] = []): Block[] {
  const tokens = new BoundedLexer(marked.defaults).lex(text).filter(token => token.type !== 'space')
  return tokens.map((token, i) => {
    const known = before[i]
    return known?.raw === token.raw ? known : { raw: token.raw, html: renderToken(token) }
  })
}

function renderToken(token: Token): string {
  return DOMPurify.sanitize(marked.parser([token]), PURIFY)
}

function link(href: string, inner: string): string {
  if (!SAFE_LINK.test(href.trim())) return inner
  return `<a href="${escapeHtml(href.trim())}" target="_blank" rel="noopener noreferrer nofollow">${inner}</a>`
}

/** The copy button acts by a click handler of the message around it. */
function codeBlock(text: string, lang: string): string {
  const name = escapeHtml(lang.trim().split(/\s+/)[0].slice(0, 30))
  const head = `<div class="code-head"><span>${name || 'text'}</span><button type="button" class="copy">Copy</button></div>`
  const pre = `<pre tabindex="0" role="region" aria-label="Code"><code>${highlight(text, name)}</code></pre>`
  return `<div class="code">${head}${pre}</div>`
}
