// Colours for code, from one small grammar that most languages share: comments, strings, numbers, words that are usually
// keywords. It knows no language well and never gets one badly wrong; everything it does not know stays plain.
import { escapeHtml } from './escapeHtml.js'

const HASH_COMMENTS = new Set(['python', 'py', 'sh', 'bash', 'shell', 'zsh', 'ruby', 'rb', 'yaml', 'yml', 'toml', 'r'])
const PLAIN = new Set(['', 'text', 'txt', 'md', 'markdown', 'plain'])
const KEYWORDS = new Set(
  (
    'abstract and as async await auto bool boolean break case catch char class const continue def default del delete do ' +
    'double elif else enum except export extends false final finally float fn for from func function global go if impl ' +
    'implements import in int interface is lambda let long match mod mut new nil none None not null number or package ' +
    'pass private protected pub public raise readonly return self static string struct super switch then this throw trait ' +
    'true True False try type typeof undefined unsigned use using var void when where while with yield'
  ).split(' '),
)
const TOKEN =
  /(\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|(#[^\n]*)|("(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|`(?:[^`\\]|\\[\s\S])*`?)|\b(\d[\w.]*)\b|([A-Za-z_$][\w$]*)/g

const MAX_LENGTH = 50_000

export function highlight(code: string, language: string): string {
  if (PLAIN.has(language.toLowerCase()) || code.length > MAX_LENGTH) return escapeHtml(code)
  const hash = HASH_COMMENTS.has(language.toLowerCase())
  let html = ''
  let at = 0
  for (const match of code.matchAll(TOKEN)) {
    const [whole, slashes, hashes, quoted, number, word] = match
    const kind = slashes
      ? 'comment'
      : hashes && hash
        ? 'comment'
        : quoted
          ? 'string'
          : number
            ? 'number'
            : keyword(word)
    if (kind === null) continue
    html += escapeHtml(code.slice(at, match.index))
    html += `<span class="tok-${kind}">${escapeHtml(whole)}</span>`
    at = match.index + whole.length
  }
  return html + escapeHtml(code.slice(at))
}

function keyword(word: string | undefined): 'keyword' | null {
  return word !== undefined && KEYWORDS.has(word) ? 'keyword' : null
}
