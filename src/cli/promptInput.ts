// Where a prompt comes from: the command line, or stdin when it is asked for (`-`) or piped in.
import { fstatSync } from 'node:fs'
import { UsageError } from '../errors.js'

/** The prompt's text. One newline at the end of stdin is the shell's and not the user's. */
export async function readPrompt(argument: string | undefined, signal: AbortSignal): Promise<string> {
  const fromStdin = argument === '-' || (argument === undefined && !process.stdin.isTTY)
  if (!fromStdin && argument === undefined) throw new UsageError('no prompt: give one, or pipe it in')
  const text = fromStdin ? (await readStdin(signal)).replace(/\r?\n$/, '') : (argument as string)
  if (text.trim() === '') throw new UsageError('the prompt is empty')
  return text
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
