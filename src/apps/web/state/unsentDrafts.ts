// What is written and not sent, by conversation: text and files. Kept over a reload where the browser has room for it, else
// as long as the page.
import type { Attachment } from './attachments.js'
import type { PageStorage } from './pageStorage.js'

const TEXTS_KEY = 'moeflux.drafts'
const FILES_KEY = 'moeflux.draftFiles'

export class Drafts {
  private readonly texts: KeptRecord<string>
  private readonly attached: KeptRecord<readonly Attachment[]>

  constructor(storage: PageStorage) {
    this.texts = new KeptRecord(storage, TEXTS_KEY)
    this.attached = new KeptRecord(storage, FILES_KEY)
  }

  text(id: string | null): string {
    return String(this.texts.get(id ?? '') ?? '')
  }

  setText(id: string | null, text: string): void {
    this.texts.set(id ?? '', text === '' ? undefined : text)
  }

  files(id: string | null): readonly Attachment[] {
    const files = this.attached.get(id ?? '')
    return Array.isArray(files) && files.every(isAttachment) ? files : []
  }

  setFiles(id: string | null, files: readonly Attachment[]): void {
    this.attached.set(id ?? '', files.length === 0 ? undefined : files)
  }

  clear(id: string | null): void {
    this.setText(id, '')
    this.setFiles(id, [])
  }
}

/** Values by name in one item of a storage, shared with other tabs. */
class KeptRecord<T> {
  private readonly unkept = new Map<string, T>() // for which the storage has no room

  constructor(
    private readonly storage: PageStorage,
    private readonly key: string,
  ) {}

  get(name: string): T | undefined {
    return this.unkept.get(name) ?? this.read()[name]
  }

  set(name: string, value: T | undefined): void {
    this.unkept.delete(name)
    const all = this.read()
    if (value === undefined && all[name] === undefined) return
    if (value === undefined) delete all[name]
    else all[name] = value
    try {
      this.storage.setItem(this.key, JSON.stringify(all))
    } catch {
      if (value !== undefined) this.unkept.set(name, value)
    }
  }

  private read(): Record<string, T> {
    try {
      return Object(JSON.parse(this.storage.getItem(this.key) ?? '{}'))
    } catch {
      return {}
    }
  }
}

/** What is read back may be from another version of the page, or a hand. */
function isAttachment(value: unknown): value is Attachment {
  const { name, text } = Object(value)
  return typeof name === 'string' && typeof text === 'string'
}
