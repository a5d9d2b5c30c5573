// The free text of a custom tool. To the model such a tool is a function with one parameter, `input`; here its text is taken out
// of the JSON of the arguments, also while that is being written.

export const CUSTOM_PARAMETERS = {
  type: 'object',
  properties: { input: { type: 'string' } },
  required: ['input'],
  additionalProperties: false,
}

const HEAD = /^\s*\{\s*"input"\s*:\s*"/
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', b: '\b', f: '\f' }

/** The text of whole arguments; what is not as it should be comes as it is. */
export function customInput(text: string): string {
  try {
    const { input } = JSON.parse(text) as { input?: unknown }
    return typeof input === 'string' ? input : text
  } catch {
    return text
  }
}

export class CustomInput {
  private unread = ''
  private inside = false
  private over = false

  /** What is certain of the text by now, beyond what was given before. */
  push(argumentsText: string): string {
    this.unread += argumentsText
    if (!this.inside) {
      const head = HEAD.exec(this.unread)
      if (head === null) return ''
      this.inside = true
      this.unread = this.unread.slice(head[0].length)
    }
    let out = ''
    let at = 0
    while (!this.over && at < this.unread.length) {
      const piece = this.next(at)
      if (piece === null) break // an escape, or half of a pair, that goes on
      out += piece.text
      at += piece.length
    }
    this.unread = this.unread.slice(at)
    return out
  }

  private next(at: number): { text: string; length: number } | null {
    const character = this.unread[at]
    if (character === '"') {
      this.over = true
      return { text: '', length: 1 }
    }
    if (character !== '\\') return { text: character, length: 1 }
    const kind = this.unread[at + 1]
    if (kind === undefined) return null
    if (kind !== 'u') return { text: ESCAPES[kind] ?? kind, length: 2 }
    const unit = this.unit(at)
    if (unit === null) return null
    if (unit < 0xd800 || unit > 0xdbff) return { text: String.fromCharCode(unit), length: 6 }
    if (this.unread.length < at + 8) return null
    const low = this.unread.startsWith('\\u', at + 6) ? this.unit(at + 6) : Number.NaN
    if (low === null) return null
    const isPair = low >= 0xdc00 && low <= 0xdfff
    return isPair ? { text: String.fromCharCode(unit, low), length: 12 } : { text: '\ufffd', length: 6 }
  }

  /** The number after a `\u`; null where it goes on. */
  private unit(at: number): number | null {
    return this.unread.length < at + 6 ? null : Number.parseInt(this.unread.slice(at + 2, at + 6), 16)
  }
}
