// Text files that go with a message: what is taken, and how the model sees them. Pure, but for reading the file.

export interface Attachment {
  readonly name: string
  readonly text: string
}

export const MAX_FILES = 10
const MAX_FILE_BYTES = 2 ** 20
const MAX_MESSAGE_CHARACTERS = 2 * 2 ** 20
const MAX_NAME = 120 // characters

/** Why a file was not taken, as a sentence. */
export class AttachmentError extends Error {}

/** Adds files to those that are there; the first that cannot be taken is told, and the others are taken all the same. */
export async function attachFiles(
  files: Iterable<File>,
  /** Asked for when the files have been read: others may have been added meanwhile. */
  before: () => readonly Attachment[],
): Promise<{ readonly attachments: readonly Attachment[]; readonly problem: string | null }> {
  const read = await Promise.allSettled(Array.from(files, readAttachment))
  const attachments = [...before()]
  let problem: string | null = null
  for (const result of read) {
    try {
      if (result.status === 'rejected') throw result.reason
      checkRoom(attachments, result.value)
      attachments.push(result.value)
    } catch (error) {
      problem ??= (error as Error).message
    }
  }
  return { attachments, problem }
}

async function readAttachment(file: File): Promise<Attachment> {
  const name = file.name.slice(-MAX_NAME)
  if (file.size > MAX_FILE_BYTES) throw new AttachmentError(`${name} is too large: files may have 1 MB.`)
  const bytes = await file.arrayBuffer().catch(() => {
    throw new AttachmentError(`${name} cannot be read: only files can be attached.`)
  })
  const text = decodeText(new Uint8Array(bytes))
  if (text === null) throw new AttachmentError(`${name} is not a text file: the model reads text only.`)
  if (text.trim() === '') throw new AttachmentError(`${name} is empty.`)
  return { name, text }
}

/** Null for what is no text: bytes that are not UTF-8 (or UTF-16 with its mark), or control characters. */
export function decodeText(bytes: Uint8Array): string | null {
  const mark = bytes[0] * 256 + bytes[1]
  const encoding = mark === 0xfffe ? 'utf-16le' : mark === 0xfeff ? 'utf-16be' : 'utf-8'
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for; a form feed and an escape are found in texts
    return /[\0-\x08\x0e-\x1a]/.test(text) ? null : text.replaceAll('\r\n', '\n')
  } catch {
    return null
  }
}

function checkRoom(before: readonly Attachment[], { name, text }: Attachment): void {
  if (before.length >= MAX_FILES)
    throw new AttachmentError(`${name} was not added: a message takes ${MAX_FILES} files.`)
  const sum = before.reduce((total, attachment) => total + attachment.text.length, text.length)
  if (sum > MAX_MESSAGE_CHARACTERS) {
    throw new AttachmentError(`${name} was not added: the files of a message may have 2 MB together.`)
  }
}

/** What the model is given for a message: each file under its name in a fence that its text cannot end, then the words. */
export function promptText(text: string, attachments: readonly Attachment[] = []): string {
  const files = attachments.map(({ name, text: content }) => {
    let longest = 0
    for (const [ticks] of content.matchAll(/`+/g)) longest = Math.max(longest, ticks.length)
    const fence = '`'.repeat(Math.max(3, longest + 1))
    return `File: ${oneLine(name)}\n${fence}\n${content.replace(/\n$/, '')}\n${fence}`
  })
  return [...files, text].filter(part => part !== '').join('\n\n')
}

/** A name is the sender's: it stays in its line. */
function oneLine(name: string): string {
  return name.replace(/\s+/g, ' ').trim() || 'file'
}
