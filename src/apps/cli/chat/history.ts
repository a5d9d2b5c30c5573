// What was typed in earlier chats, for the arrow keys: one entry a line, newest last. A convenience: a file that cannot be
// read or written is nobody's trouble.
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { readRegular } from '../../../base/regularFile.js'
import { storeRoot } from '../../../internal.js'

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
