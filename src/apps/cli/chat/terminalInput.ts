// Reads what a person types at the prompt of a chat, with line editing, history and pastes of several lines. The line
// editor lives only while the prompt waits: during an answer the terminal is in its ordinary mode and Ctrl-C is a signal.
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { PassThrough } from 'node:stream'
import { readRegular } from '../../../base/regularFile.js'
import { storeRoot } from '../../../internal.js'
import { joinedLines, PASTE_OFF, PASTE_ON, PasteFilter } from './pasteFilter.js'

/** A key sequence that is cut between two reads is completed within this time. */
const SEQUENCE_MS = 40

export type TerminalEntry =
  | { readonly type: 'line'; readonly text: string }
  | { readonly type: 'interrupt' } // Ctrl-C
  | { readonly type: 'end' } // Ctrl-D

export interface TerminalInputOptions {
  readonly history: string[] // newest first; grows with what is entered
  readonly complete: (line: string) => string[]
}

export class TerminalInput {
  private readonly pastes = new PasteFilter()
  private readonly utf8 = new TextDecoder()
  private keys: KeyStream | null = null // of the line editor, while it waits
  private ahead = '' // typed before the prompt was there
  private timer: NodeJS.Timeout | null = null

  constructor(private readonly options: TerminalInputOptions) {}

  /** Waits for one entry. A line that ends with a backslash goes on in the next. */
  async read(prompt: string, continuation: string): Promise<TerminalEntry> {
    let text = ''
    for (;;) {
      const entry = await this.readLine(text === '' ? prompt : continuation)
      if (entry.type !== 'line') return entry
      if (!entry.text.endsWith('\\')) return { type: 'line', text: text + joinedLines(entry.text) }
      text += `${joinedLines(entry.text.slice(0, -1))}\n`
    }
  }

  private readLine(prompt: string): Promise<TerminalEntry> {
    if (process.stdin.readableEnded || process.stdin.destroyed) return Promise.resolve({ type: 'end' })
    const keys = new KeyStream()
    const editor = createInterface({
      input: keys,
      output: process.stderr,
      terminal: true,
      prompt,
      history: [...this.options.history],
      historySize: 500,
      removeHistoryDuplicates: true,
      completer: (line: string) => [this.options.complete(line), line],
    })
    process.stderr.write(PASTE_ON)
    const listener = (chunk: Uint8Array) => this.receive(chunk)
    const ended = () => editor.close()
    process.stdin.on('data', listener).once('end', ended).resume()
    return new Promise(resolve => {
      let isOver = false
      const finish = (entry: TerminalEntry) => {
        if (isOver) return
        isOver = true
        this.keys = null
        editor.close() // its own listeners take those away that it has on the terminal
        process.stdin.off('data', listener).off('end', ended).pause()
        process.stderr.write(PASTE_OFF)
        resolve(entry)
      }
      editor.on('history', (history: string[]) => {
        this.options.history.splice(0, Number.POSITIVE_INFINITY, ...history)
      })
      editor.once('line', text => finish({ type: 'line', text }))
      editor.once('SIGINT', () => {
        process.stderr.write('\n')
        finish({ type: 'interrupt' })
      })
      editor.once('close', () => {
        if (!isOver) process.stderr.write('\n')
        finish({ type: 'end' })
      })
      editor.prompt()
      this.keys = keys
      this.pass('')
    })
  }

  private receive(chunk: Uint8Array): void {
    if (this.timer !== null) clearTimeout(this.timer)
    this.pass(this.pastes.push(this.utf8.decode(chunk, { stream: true })))
    if (this.pastes.isHolding) this.timer = setTimeout(() => this.pass(this.pastes.flush()), SEQUENCE_MS)
  }

  /** The editor gets keys up to the first Enter; what comes after it is for the next prompt. */
  private pass(keys: string): void {
    const all = this.ahead + keys
    const line = /^[^\r\n]*(?:\r\n?|\n)?/.exec(all)?.[0] ?? ''
    this.ahead = this.keys === null ? all : all.slice(line.length)
    if (this.keys !== null && line !== '') this.keys.write(line)
  }
}

/** Keys for the line editor, looking like a terminal to it. */
class KeyStream extends PassThrough {
  readonly isTTY = true

  setRawMode(on: boolean): this {
    process.stdin.setRawMode?.(on)
    return this
  }
}

/**
 * What was typed in earlier chats, for the arrow keys: one entry a line, newest last. A convenience: a file that cannot be
 * read or written is nobody's trouble.
 */
const MAX_ENTRIES = 500

function historyFile(): string {
  return join(storeRoot(), 'chat_history')
}

/** Newest first, as the line editor wants it. */
export async function readHistory(): Promise<string[]> {
  const text = await readRegular(historyFile()).then(String, () => '')
  return text
    .split('\n')
    .filter(line => line !== '')
    .reverse()
    .slice(0, MAX_ENTRIES)
}

export async function writeHistory(entries: readonly string[]): Promise<void> {
  const lines = entries.slice(0, MAX_ENTRIES).reverse()
  try {
    await mkdir(dirname(historyFile()), { recursive: true })
    await writeFile(historyFile(), lines.map(line => `${line}\n`).join(''), { mode: 0o600 })
  } catch {}
}
