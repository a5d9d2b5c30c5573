// Conversations of a page that goes before they are in the store: what a database is asked for then is not sure to happen, and a
// message that was just sent would be gone. So they are left in a storage that is written at once, and the next page takes them over.
import type { Conversation } from './conversation.js'
import type { PageStorage } from './pageStorage.js'

const UNSAVED_KEY = 'moeflux.unsaved'

export class Unsaved {
  constructor(private readonly storage: PageStorage) {}

  /** Beside what other tabs have left. Where there is no room for them, the database may still get them. */
  leave(conversations: readonly Conversation[]): void {
    const ids = new Set(conversations.map(({ id }) => id))
    this.write([...this.left().filter(({ id }) => !ids.has(id)), ...conversations])
  }

  left(): Conversation[] {
    try {
      const left: unknown = JSON.parse(this.storage.getItem(UNSAVED_KEY) ?? '[]')
      return Array.isArray(left) ? left.filter(isConversation) : []
    } catch {
      return []
    }
  }

  /** These are in the store, or are wanted no more. */
  settle(ids: readonly string[]): void {
    const left = this.left()
    const others = left.filter(({ id }) => !ids.includes(id))
    if (others.length < left.length) this.write(others)
  }

  private write(conversations: readonly Conversation[]): void {
    try {
      if (conversations.length === 0) this.storage.removeItem(UNSAVED_KEY)
      else this.storage.setItem(UNSAVED_KEY, JSON.stringify(conversations))
    } catch {
      // No room: what was left before stays.
    }
  }
}

/** What is read back may be from another version of the page, or a hand. */
function isConversation(value: unknown): value is Conversation {
  const { id, messages } = Object(value)
  return typeof id === 'string' && Array.isArray(messages)
}
