// Token ids of conversations in which the model wrote some text with other tokens than encoding it would give, by that text.
import { hex, sha256 } from '../../base/sha256.js'
import type { StoreWait } from '../../stores/storeWait.js'
import type { RenderedChat } from '../../text/template/chatRenderer.js'
import type { Section } from '../../text/tokenizer/encoder.js'
import type { Tokenizer } from '../../text/tokenizer/tokenizer.js'
import type { TextWorkers } from '../../text/workers/textWorkers.js'
import { commonPrefix } from '../prefixMatch.js'
import type { Prompt } from '../prompt.js'
import type { NoteStores } from '../stateStores.js'

export interface KnownStart {
  readonly text: string
  readonly ids: readonly number[]
  readonly sections: readonly Section[]
}

interface RememberedStart extends KnownStart {
  readonly mark: string
  readonly scope: string
}

const REMEMBERED_STARTS = 32
const REMEMBERED_PLAIN = 4096 // answers whose ids need no remembering
const LAST_CHARACTERS = 256 // of an answer in a prompt, in which the token that ends it is looked for
const LONGEST_ADDED = 64

export class IdMemory {
  private readonly starts: RememberedStart[] = [] // newest last
  private readonly plain = new Set<string>() // scopes and keys of texts that were answered here, and that encoding is right for

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly workers: TextWorkers,
    private readonly notes: NoteStores | null,
  ) {}

  /**
   * Remembers the ids of prompt and answer where encoding their text would give others. Returns whether the next prompt
   * will begin with these ids in any process.
   */
  async remember(prompt: Prompt, answer: readonly number[], signal: AbortSignal): Promise<boolean> {
    const raw = this.tokenizer.decode(answer)
    const { sections, mark, scope } = prompt
    const last = sections.at(-1) ?? { start: 0, token: 0 }
    const rest = prompt.text.slice(last.start) + raw
    const again = (await this.workers.encode(rest, { mark }, Number.POSITIVE_INFINITY, signal)).ids
    const ids = [...prompt.ids, ...answer]
    const isPlain =
      again.length === ids.length - last.token && commonPrefix(again, ids.slice(last.token)) === again.length
    const text = prompt.text + raw
    const key = this.notes === null ? '' : await keyOf(text, mark)
    if (isPlain && !prompt.hasOwnIds) {
      this.plain.add(`${scope} ${key}`)
      if (this.plain.size > REMEMBERED_PLAIN) this.plain.delete(this.plain.values().next().value as string)
      return true
    }
    this.keep({ text, mark, scope, ids, sections })
    // Also of an answer that is as it should be, after one that is not: whoever looks for it looks at the last answers.
    this.notes?.note(key, scope, { ids, sections: sections.map(({ start, token }) => [start, token]) })
    return this.notes !== null
  }

  /** The longest remembered start of the text that ends where an added token follows, so that no merge crosses its end. */
  async knownStart(
    rendered: RenderedChat,
    scope: string,
    wait: StoreWait,
    signal?: AbortSignal,
  ): Promise<KnownStart | null> {
    const { text, mark } = rendered
    let best: RememberedStart | null = null
    for (const start of this.starts) {
      if (start.mark !== mark || start.scope !== scope || start.text.length <= (best?.text.length ?? 0)) continue
      if (text.startsWith(start.text) && this.isAdded(text, start.text.length, mark)) best = start
    }
    if (this.notes === null) return best
    const known = best?.text.length ?? 0
    return (await this.notedStart(this.notes, rendered, known, scope, wait, signal)) ?? best
  }

  /** What stores have of the last answers in it, if that is more than `known` characters. */
  private async notedStart(
    notes: NoteStores,
    rendered: RenderedChat,
    known: number,
    scope: string,
    wait: StoreWait,
    signal?: AbortSignal,
  ): Promise<KnownStart | null> {
    const { text, mark } = rendered
    const asked: { readonly text: string; readonly key: string }[] = []
    for (const end of this.answerEnds(rendered).filter(end => end > known)) {
      const start = text.slice(0, end)
      const key = await keyOf(start, mark)
      if (this.plain.has(`${scope} ${key}`)) break // and so is all that comes before it
      asked.push({ text: start, key })
    }
    if (asked.length === 0) return null
    const keys = asked.map(({ key }) => key)
    for (const [i, value] of (await notes.recall(keys, scope, wait, signal)).entries()) {
      const start = this.readStart(value, asked[i].text)
      if (start === null) continue
      this.keep({ ...start, mark, scope })
      return start
    }
    return null
  }

  /** Where the last answers in the prompt may have ended, the latest first: where added tokens are. */
  private answerEnds({ text, mark, turns }: RenderedChat): number[] {
    const ends = turns.flatMap(({ opening, end, isWhole }) => {
      if (!isWhole) return [] // no answer can follow here as it followed there
      const from = Math.max(opening, end - LAST_CHARACTERS)
      const found = [...this.tokenizer.findAdded(text.slice(from, end), mark)]
      return found.slice(-2).map(({ at }) => from + at)
    })
    return [...new Set(ends)].sort((a, b) => b - a)
  }

  private isAdded(text: string, at: number, mark: string): boolean {
    const [found] = this.tokenizer.findAdded(text.slice(at, at + LONGEST_ADDED), mark)
    return found?.at === 0
  }

  private readStart(value: unknown, text: string): KnownStart | null {
    if (value === null || typeof value !== 'object') return null
    const { ids, sections } = value as { ids?: unknown; sections?: unknown }
    const isWhole = (number: unknown, below: number) =>
      Number.isInteger(number) && Number(number) >= 0 && Number(number) < below
    if (!Array.isArray(ids) || !ids.every(id => isWhole(id, this.tokenizer.vocabSize))) return null
    const isSection = (pair: unknown) =>
      Array.isArray(pair) && isWhole(pair[0], text.length) && isWhole(pair[1], ids.length)
    if (!Array.isArray(sections) || !sections.every(isSection)) return null
    return { text, ids, sections: sections.map(([start, token]) => ({ start, token })) }
  }

  private keep(start: RememberedStart): void {
    this.starts.push(start)
    if (this.starts.length > REMEMBERED_STARTS) this.starts.shift()
  }
}

async function keyOf(text: string, mark: string): Promise<string> {
  return `ids ${mark} ${hex(await sha256(new TextEncoder().encode(text)))}`
}
