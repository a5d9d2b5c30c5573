// Conversations as files: JSON that can be imported again, and Markdown to read. What is imported comes from anywhere, so
// every field is checked and copied one by one; text stays text.
import { type Attachment, MAX_FILES, promptText } from './attachments.js'
import { type AnswerUsage, branch, type Conversation, type Message, newId } from './conversation.js'
import { type HeatStrip, readStrip } from './heatStrip.js'

const FORMAT = 'moeflux-conversations'
const MAX_CONVERSATIONS = 10_000
const MAX_MESSAGES = 20_000

export function toJson(conversations: readonly Conversation[]): string {
  return `${JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 2)}\n`
}

/** The shown branch. */
export function toMarkdown(conversation: Conversation): string {
  const parts = [`# ${conversation.title}`]
  if (conversation.system !== '') parts.push(`> ${conversation.system.replaceAll('\n', '\n> ')}`)
  for (const message of branch(conversation)) {
    parts.push(`## ${message.role === 'user' ? 'You' : (message.by ?? 'Assistant')}`)
    if (message.thinking) {
      parts.push(`<details><summary>Thinking</summary>\n\n${message.thinking.trim()}\n\n</details>`)
    }
    parts.push(promptText(message.text.trim(), message.attachments))
  }
  return `${parts.join('\n\n')}\n`
}

export class ImportError extends Error {}

/** Each gets an identity of its own, so that nothing that is there is overwritten. */
export function fromJson(text: string): Conversation[] {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new ImportError('the file is not JSON')
  }
  const root = asObject(value)
  if (root?.format !== FORMAT) throw new ImportError(`the file is not an export of moeflux`)
  if (root.version !== 1) throw new ImportError(`the export has version ${named(root.version)}, want 1`)
  const { conversations } = root
  if (!Array.isArray(conversations)) throw new ImportError('the export has no list of conversations')
  if (conversations.length > MAX_CONVERSATIONS) throw new ImportError('the export has too many conversations')
  return conversations.map((each, i) => readConversation(each, `conversation ${i + 1}`))
}

function readConversation(value: unknown, where: string): Conversation {
  const fields = asObject(value)
  const list = fields?.messages
  if (fields === null || !Array.isArray(list)) throw new ImportError(`${where} has no messages`)
  if (list.length > MAX_MESSAGES) throw new ImportError(`${where} has too many messages`)
  const ids = new Map<string, string>() // as written → as kept
  const messages: Message[] = []
  for (const [i, each] of list.entries()) {
    const message = readMessage(each, `message ${i + 1} of ${where}`, ids)
    messages.push(message)
  }
  const head = ids.get(idOf(fields.head)) ?? messages.at(-1)?.id ?? null
  const now = Date.now()
  return {
    id: newId(),
    title: textOf(fields.title, 'Imported chat').slice(0, 200),
    titled: fields.titled === true,
    ...(fields.pinned === true && { pinned: true }),
    createdAt: numberOf(fields.createdAt, now),
    updatedAt: numberOf(fields.updatedAt, now),
    system: textOf(fields.system, ''),
    messages,
    head,
  }
}

function readMessage(value: unknown, where: string, ids: Map<string, string>): Message {
  const fields = asObject(value)
  if (fields === null || typeof fields.text !== 'string') throw new ImportError(`${where} has no text`)
  const { role } = fields
  if (role !== 'user' && role !== 'assistant')
    throw new ImportError(`${where} has role ${named(role)}, want "user" or "assistant"`)
  // A parent comes before what answers it, so there are no loops.
  const parent = fields.parent === null || fields.parent === undefined ? null : ids.get(idOf(fields.parent))
  if (parent === undefined) throw new ImportError(`${where} answers a message that is not there`)
  const id = newId()
  ids.set(idOf(fields.id), id)
  const end = fields.end
  return {
    id,
    parent,
    role,
    text: fields.text,
    createdAt: numberOf(fields.createdAt, Date.now()),
    ...(role === 'user' && attachmentsOf(fields.attachments)),
    ...(typeof fields.thinking === 'string' && { thinking: fields.thinking }),
    ...(typeof fields.thinkingSeconds === 'number' && { thinkingSeconds: numberOf(fields.thinkingSeconds, 0) }),
    ...(role === 'assistant' && { end: end === 'length' || end === 'stopped' || end === 'left' ? end : 'stop' }),
    ...(typeof fields.by === 'string' && { by: fields.by.slice(0, 200) }),
    ...usageOf(fields.usage),
    ...heatOf(fields.heat),
  }
}

function attachmentsOf(value: unknown): { attachments?: readonly Attachment[] } {
  const list = (Array.isArray(value) ? value : []).slice(0, MAX_FILES).flatMap(each => {
    const { name, text } = asObject(each) ?? {}
    return typeof name === 'string' && typeof text === 'string' ? [{ name: name.slice(0, 200), text }] : []
  })
  return list.length === 0 ? {} : { attachments: list }
}

function usageOf(value: unknown): { usage?: AnswerUsage } {
  const fields = asObject(value)
  if (fields === null) return {}
  const read = (name: keyof AnswerUsage) => numberOf(fields[name], 0)
  return {
    usage: {
      promptTokens: read('promptTokens'),
      cachedTokens: read('cachedTokens'),
      answerTokens: read('answerTokens'),
      promptSeconds: read('promptSeconds'),
      answerSeconds: read('answerSeconds'),
      ...(typeof fields.firstSeconds === 'number' && { firstSeconds: read('firstSeconds') }),
    },
  }
}

function heatOf(value: unknown): { heat?: HeatStrip } {
  const heat = readStrip(value)
  return heat === null ? {} : { heat }
}

function asObject(value: unknown): Record<string, unknown> | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : null
}

/** What stands for a message in the file. An object has no text of its own, and asking for it may fail. */
function idOf(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : ''
}

/** What the file has in a place, for a message; it may be anything and of any size. */
function named(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40))
  return typeof value === 'number' ? String(value) : 'unknown'
}

function textOf(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value : otherwise
}

function numberOf(value: unknown, otherwise: number): number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : otherwise
}
