// Where a prompt comes from: the words of the command line, what is piped in, files. Material comes first and the words
// after it, as people ask about something they have just shown.
import { fstatSync } from 'node:fs'
import { UsageError } from '../../base/errors.js'
import { readRegular } from '../../base/regularFile.js'

const WAITING_MS = 3000
const SOCKET_MS = 1000 // other programs leave such a stdin open and never write to it

export interface PromptSource {
  /** Not quoted, a prompt is several words; one '-' asks for stdin. */
  readonly words: readonly string[]
  readonly files?: readonly string[]
  readonly signal: AbortSignal
  /** Told when stdin has nothing for a while. */
  readonly onWait?: (line: string) => void
}

/** The prompt's text. */
export async function readPrompt(source: PromptSource): Promise<string> {
  const text = await readPromptIfAny(source)
  if (text !== null) return text
  throw new UsageError(process.stdin.isTTY ? 'no prompt: give one, or pipe it in' : 'the prompt is empty')
}

/**
 * The same where it may be missing: null at a terminal, and where stdin has nothing that was not asked for, as in a cron
 * job. One newline at the end of stdin is the shell's and not the user's.
 */
export async function readPromptIfAny(source: PromptSource): Promise<string | null> {
  const { words, files = [] } = source
  const asksStdin = words.length === 1 && words[0] === '-'
  const said = asksStdin ? '' : words.join(' ')
  if (words.length > 0 && !asksStdin && said.trim() === '') throw new UsageError('the prompt is empty')
  const shown: string[] = []
  for (const file of files) shown.push(`<file name="${file}">\n${await readText(file)}\n</file>`)
  const hasOther = said !== '' || files.length > 0
  if (asksStdin || (hasOther ? isPiped() : !process.stdin.isTTY)) {
    const patience = hasOther && isSocket() ? SOCKET_MS : undefined
    const piped = (await readStdin(source.signal, source.onWait, patience)).replace(/\r?\n$/, '')
    if (piped.trim() !== '') shown.push(piped)
    else if (asksStdin) throw new UsageError('the prompt is empty')
  }
  const parts = said === '' ? shown : [...shown, said]
  return parts.length === 0 ? null : parts.join('\n\n')
}

/** A terminal, a closed stdin and /dev/null have nothing to say beside a prompt. */
function isPiped(): boolean {
  try {
    const info = fstatSync(0)
    return info.isFIFO() || info.isFile() || info.isSocket()
  } catch {
    return false
  }
}

function isSocket(): boolean {
  return fstatSync(0).isSocket()
}

/** A file as text; what cannot be text is refused, and not sent as mojibake. */
async function readText(file: string): Promise<string> {
  const bytes = await readRegular(file)
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    if (!text.includes('\0')) return text.replace(/\r?\n$/, '')
  } catch {}
  throw new UsageError(`${file}: is not a text file`)
}

/** `patience`: so long for the first bytes, in milliseconds; then there is nothing. */
export async function readStdin(
  signal: AbortSignal,
  onWait?: (line: string) => void,
  patience?: number,
): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  let isOver = false
  let leave = () => {}
  // Deno's stdin stays in its read when it is destroyed.
  const left = new Promise<IteratorResult<never, undefined>>(resolve => {
    leave = () => resolve({ done: true, value: undefined })
  })
  const stop = () => {
    isOver = true
    process.stdin.destroy()
    leave()
  }
  const wait = () => onWait?.('waiting for stdin, which is a pipe; < /dev/null says that nothing comes')
  const giveUp = () => {
    onWait?.('nothing came through stdin, which is open: going on without it')
    stop()
  }
  const timer = patience === undefined ? setTimeout(wait, WAITING_MS) : setTimeout(giveUp, patience)
  signal.addEventListener('abort', stop, { once: true })
  const chunks: AsyncIterator<Uint8Array> = process.stdin[Symbol.asyncIterator]()
  try {
    for (;;) {
      const next = await Promise.race([chunks.next(), left])
      clearTimeout(timer)
      if (next.done) break
      text += decoder.decode(next.value, { stream: true })
    }
  } catch (error) {
    if (!isOver) throw error // it was closed by who waited
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', stop)
  }
  signal.throwIfAborted()
  text += decoder.decode()
  // Node gives a stream without anything for it, and no error.
  if (text === '' && fstatSync(0).isDirectory()) throw new UsageError('stdin is a folder')
  return text
}
