// Where a prompt comes from: the command line, or stdin when it is asked for (`-`) or piped in.
import { fstatSync } from 'node:fs'
import { UsageError } from '../errors.js'

/** The prompt's text. */
export async function readPrompt(argument: string | undefined, signal: AbortSignal): Promise<string> {
  const text = await readPromptIfAny(argument, signal)
  if (text !== null) return text
  throw new UsageError(process.stdin.isTTY ? 'no prompt: give one, or pipe it in' : 'the prompt is empty')
}

/**
 * The same where it may be missing: null at a terminal, and where stdin has nothing that was not asked for, as in a cron
 * job. One newline at the end of stdin is the shell's and not the user's.
 */
export async function readPromptIfAny(argument: string | undefined, signal: AbortSignal): Promise<string | null> {
  if (argument === undefined && process.stdin.isTTY) return null
  const fromStdin = argument === undefined || argument === '-'
  const text = fromStdin ? (await readStdin(signal)).replace(/\r?\n$/, '') : argument
  if (text.trim() !== '') return text
  if (argument === undefined) return null
  throw new UsageError('the prompt is empty')
}

export async function readStdin(signal: AbortSignal): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  const stop = () => process.stdin.destroy()
  signal.addEventListener('abort', stop, { once: true })
  try {
    for await (const chunk of process.stdin) text += decoder.decode(chunk as Uint8Array, { stream: true })
  } finally {
    signal.removeEventListener('abort', stop)
  }
  signal.throwIfAborted()
  text += decoder.decode()
  // Node gives a stream without anything for it, and no error.
  if (text === '' && fstatSync(0).isDirectory()) throw new UsageError('stdin is a folder')
  return text
}
