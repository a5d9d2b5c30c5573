// Where conversations are kept: the browser's IndexedDB, one record each. Other tabs of the same page are told of changes.
// Where the browser refuses storage (private windows), conversations live as long as the page.
import { type Conversation, joined } from './conversation.js'

const DATABASE = 'moeflux'
const STORE = 'conversations'

export class ConversationStore {
  private constructor(
    private readonly database: IDBDatabase | null,
    private readonly channel: BroadcastChannel | null,
  ) {}

  static async open(onForeignChange: () => void): Promise<ConversationStore> {
    const channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('moeflux-conversations') : null
    channel?.addEventListener('message', () => onForeignChange())
    try {
      return new ConversationStore(await openDatabase(), channel)
    } catch {
      return new ConversationStore(null, channel)
    }
  }

  get isLasting(): boolean {
    return this.database !== null
  }

  async all(): Promise<Conversation[]> {
    if (this.database === null) return []
    return await settled(this.database.transaction(STORE).objectStore(STORE).getAll())
  }

  /** Another tab may have added messages since these were read: they stay. */
  async put(conversations: readonly Conversation[]): Promise<void> {
    await this.change(store => {
      for (const conversation of conversations) {
        const there: IDBRequest<Conversation | undefined> = store.get(conversation.id)
        there.onsuccess = () => store.put(joined(conversation, there.result))
      }
    })
  }

  async remove(ids: readonly string[]): Promise<void> {
    await this.change(store => {
      for (const id of ids) store.delete(id)
    })
  }

  private async change(work: (store: IDBObjectStore) => void): Promise<void> {
    if (this.database === null) return
    const transaction = this.database.transaction(STORE, 'readwrite')
    const done = new Promise<void>((resolve, reject) => {
      transaction.oncomplete = () => resolve()
      transaction.onerror = () => reject(transaction.error)
      transaction.onabort = () => reject(transaction.error)
    })
    work(transaction.objectStore(STORE))
    await done
    this.channel?.postMessage('changed')
  }
}

function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, 1)
  request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: 'id' })
  return settled(request)
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
}
