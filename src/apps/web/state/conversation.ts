// A conversation: messages that know what they answer, and which branch is shown. Editing a message or asking for another
// answer adds a branch and loses nothing. Pure: every function returns a new conversation.

import type { Attachment } from './attachments.js'
import type { HeatStrip } from './heatStrip.js'

export interface Message {
  readonly id: string
  readonly parent: string | null
  readonly role: 'user' | 'assistant'
  readonly text: string
  readonly createdAt: number // milliseconds
  readonly attachments?: readonly Attachment[] // of the user's
  readonly thinking?: string
  readonly thinkingSeconds?: number
  /** How an answer ended; missing while it is being written. */
  readonly end?: 'stop' | 'length' | 'stopped' | 'left' | 'failed'
  readonly failure?: Failure
  readonly usage?: AnswerUsage
  readonly heat?: HeatStrip // the experts that the engine used meanwhile
  readonly by?: string // the model, and where it ran
}

export type FailureKind = 'unreachable' | 'unauthorized' | 'busy' | 'contextFull' | 'stopping' | 'offline' | 'other'

export interface Failure {
  readonly kind: FailureKind
  readonly message: string
}

export interface AnswerUsage {
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly answerTokens: number
  readonly promptSeconds: number
  readonly answerSeconds: number
  readonly firstSeconds?: number // from the question to the first token, as the user saw it
}

export interface Conversation {
  readonly id: string
  readonly title: string
  readonly titled: boolean // by the user
  readonly pinned?: boolean // stays at the top of the list
  readonly createdAt: number
  readonly updatedAt: number
  readonly system: string
  readonly messages: readonly Message[] // in order of creation
  readonly head: string | null // the last message of the branch that is shown
}

/** Not `randomUUID`, which pages over plain HTTP in a local network do not have. */
export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, '0')).join('')
}

export function newConversation(system: string, now = Date.now()): Conversation {
  return {
    id: newId(),
    title: 'New chat',
    titled: false,
    createdAt: now,
    updatedAt: now,
    system,
    messages: [],
    head: null,
  }
}

/** The messages of the shown branch, first one first. */
export function branch(conversation: Conversation, head = conversation.head): Message[] {
  const byId = new Map(conversation.messages.map(message => [message.id, message]))
  const path: Message[] = []
  const seen = new Set<string>()
  for (let id = head; id !== null && !seen.has(id); ) {
    const message = byId.get(id)
    if (message === undefined) break
    seen.add(id)
    path.unshift(message)
    id = message.parent
  }
  return path
}

/** Messages that take the same place, in order of creation. */
export function siblings(conversation: Conversation, message: Message): Message[] {
  return conversation.messages.filter(other => other.parent === message.parent && other.role === message.role)
}

/** Adds a message and shows it. */
export function append(conversation: Conversation, message: Message): Conversation {
  const next = {
    ...conversation,
    messages: [...conversation.messages, message],
    head: message.id,
    updatedAt: message.createdAt,
  }
  return conversation.titled || message.role !== 'user' || message.parent !== null
    ? next
    : { ...next, title: titleFrom(message.text || (message.attachments?.[0]?.name ?? '')) }
}

export function change(conversation: Conversation, id: string, fields: Partial<Message>): Conversation {
  const messages = conversation.messages.map(message => (message.id === id ? { ...message, ...fields } : message))
  return { ...conversation, messages, updatedAt: Date.now() }
}

/** What two tabs have made of a conversation: the messages of both. Where they differ in one, it is the one that went further. */
export function joined(mine: Conversation, other: Conversation | undefined): Conversation {
  if (other === undefined || other.messages === mine.messages) return mine
  const theirs = new Map(other.messages.map(message => [message.id, message]))
  const messages = mine.messages.map(message => further(message, theirs.get(message.id)))
  for (const { id } of messages) theirs.delete(id)
  return { ...mine, messages: [...messages, ...theirs.values()] }
}

function further(mine: Message, theirs: Message | undefined): Message {
  if (theirs === undefined) return mine
  const more = lengthOf(theirs) - lengthOf(mine)
  return more > 0 || (more === 0 && mine.end === undefined) ? theirs : mine
}

function lengthOf({ text, thinking = '' }: Message): number {
  return text.length + thinking.length
}

/** Shows the branch through a message, as far as it was last taken. */
export function showBranch(conversation: Conversation, id: string): Conversation {
  let head = id
  for (;;) {
    const children = conversation.messages.filter(message => message.parent === head)
    const newest = children.at(-1)
    if (newest === undefined) return { ...conversation, head }
    head = newest.id
  }
}

export function titleFrom(text: string): string {
  const line = text.trim().replace(/\s+/g, ' ')
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line || 'New chat'
}

/** Whether any of it contains all words of a query. */
export function matches(conversation: Conversation, query: string): boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean)
  const said = conversation.messages.flatMap(({ text, attachments = [] }) => [
    text,
    ...attachments.map(({ name }) => name),
  ])
  const text = [conversation.title, ...said].join('\n').toLowerCase()
  return words.every(word => text.includes(word))
}
