// The place of one model in the origin-private file system: small files whole, the resident part and experts as records.
// The first tab that opens a model writes; others read what is there. When the browser gives no more room, experts of
// other models go first, those not used for longest; after that nothing more is stored, which is told once. What the
// bytes mean, and where they come from, is not known here.
import { messageOf, OptionError } from '../../base/errors.js'
import { hex, sha256 } from '../../base/sha256.js'
import { ReadOnlyRecords, type RecordStore, WritableRecords } from './recordStore.js'
import { openSyncAccess } from './syncAccess.js'
import { xxHash32 } from './xxHash.js'

const ROOT = 'moeflux'
const INFO = 'model.json'
const SUM_BYTES = 4

/** A page that was just left, or is loaded again, lets go of its lock in a moment. */
const LOCK_PATIENCE_MS = 1000

/** What is remembered of a model beside its bytes. */
export interface CachedInfo {
  url: string
  lastUsed: number
  files: Record<string, { size: number; tag: string }>
  absent: string[] // small files that the server does not have
}

export class ModelCache {
  readonly info: CachedInfo
  private readonly stores = new Set<RecordStore>()
  private full = false
  private evicting: Promise<boolean> | null = null

  private constructor(
    private readonly folder: FileSystemDirectoryHandle,
    /** False: another tab has the model open and writes. */
    readonly writable: boolean,
    info: CachedInfo | null,
    url: string,
    private readonly release: () => void,
    private readonly onNotice: (line: string) => void,
  ) {
    this.info = info ?? { url, lastUsed: 0, files: {}, absent: [] }
    this.info.lastUsed = Date.now()
  }

  /** Throws where the browser has no such file system, or refuses it (private windows). */
  static async open(url: string, onNotice: (line: string) => void): Promise<ModelCache> {
    const root = await navigator.storage.getDirectory()
    const models = await root.getDirectoryHandle(ROOT, { create: true })
    const name = await cacheFolderName(url)
    const release = await takeLock(name, LOCK_PATIENCE_MS)
    try {
      const folder = await models.getDirectoryHandle(name, { create: true })
      const info = await readInfo(folder)
      const cache = new ModelCache(
        folder,
        release !== null,
        info?.url === url ? info : null,
        url,
        release ?? (() => {}),
        onNotice,
      )
      if (release === null) {
        onNotice('another tab has this model open: this one uses what it stored, and stores nothing itself')
      }
      await cache.saveInfo()
      return cache
    } catch (error) {
      release?.()
      throw error
    }
  }

  /** A small file, or null where it is not stored or was damaged. */
  async readFile(name: string): Promise<Uint8Array | null> {
    return await readChecked(this.folder, fileName(name))
  }

  async writeFile(name: string, bytes: Uint8Array): Promise<void> {
    await this.store(() => writeChecked(this.folder, fileName(name), bytes))
  }

  async saveInfo(): Promise<void> {
    await this.writeFile(INFO, new TextEncoder().encode(JSON.stringify(this.info)))
  }

  /** Null where there is none to read, or it cannot be written. */
  async openRecords(name: string, recordBytes: number): Promise<RecordStore | null> {
    if (!this.writable) return await ReadOnlyRecords.open(this.folder, name, recordBytes)
    const damaged = () => this.onNotice('a stored part of the model was damaged; it is fetched again')
    try {
      const store = await WritableRecords.open(this.folder, name, recordBytes, damaged)
      this.stores.add(store)
      return store
    } catch (error) {
      this.onNotice(`a part of the model is not kept in the browser's storage: ${messageOf(error)}`)
      return null
    }
  }

  /** Writes where there is room, and makes room where there is none. Trouble with the storage is told and never thrown. */
  async store(write: () => void | Promise<void>): Promise<void> {
    while (this.writable && !this.full) {
      try {
        return await write()
      } catch (error) {
        const { name, message } = error as Error
        if (name === 'QuotaExceededError' && (await this.makeRoom())) continue
        if (this.full) return
        this.full = true
        this.onNotice(
          name === 'QuotaExceededError'
            ? 'the browser gives no more storage: parts of the model that do not fit are fetched each time'
            : `nothing more is kept in the browser's storage: ${message}`,
        )
      }
    }
  }

  /** Once for all writes that found no room at the same time. */
  private async makeRoom(): Promise<boolean> {
    this.evicting ??= this.evictOther()
      .catch(() => false)
      .finally(() => {
        this.evicting = null
      })
    return await this.evicting
  }

  close(): void {
    this.closeStores()
    this.release()
  }

  /** Removes what is stored of this model. Nothing is read from it or stored in it from then on. */
  async clear(): Promise<void> {
    if (!this.writable)
      throw new OptionError('clearCache', 'a tab that only reads', 'the tab that opened the model first')
    this.full = true
    this.closeStores()
    const names: string[] = []
    for await (const name of this.folder.keys()) names.push(name)
    for (const name of names) await this.folder.removeEntry(name)
  }

  private closeStores(): void {
    for (const store of this.stores) store.close()
    this.stores.clear()
  }

  /** Bytes of all files of the model. */
  async bytes(): Promise<number> {
    let sum = 0
    for await (const handle of this.folder.values()) {
      if (handle.kind === 'file') sum += (await (handle as FileSystemFileHandle).getFile()).size
    }
    return sum
  }

  /** Removes the experts of the model that was not used for longest and that no tab has open. */
  private async evictOther(): Promise<boolean> {
    const models = await (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT)
    const others: { name: string; folder: FileSystemDirectoryHandle; lastUsed: number; files: string[] }[] = []
    for await (const [name, handle] of models.entries()) {
      if (handle.kind !== 'directory' || name === this.folder.name) continue
      const folder = handle as FileSystemDirectoryHandle
      const files: string[] = []
      for await (const file of folder.keys()) if (/experts.*\.(records|index)$/.test(file)) files.push(file)
      if (files.length > 0) others.push({ name, folder, files, lastUsed: (await readInfo(folder))?.lastUsed ?? 0 })
    }
    for (const { name, folder, files } of others.sort((a, b) => a.lastUsed - b.lastUsed)) {
      const release = await takeLock(name, 0)
      if (release === null) continue
      try {
        for (const file of files) await folder.removeEntry(file)
        this.onNotice(`experts of another model were removed from the browser's storage to make room`)
        return true
      } finally {
        release()
      }
    }
    return false
  }
}

/** Name of a model's folder in the storage of browsers. */
export async function cacheFolderName(url: string): Promise<string> {
  return hex(await sha256(new TextEncoder().encode(url))).slice(0, 24)
}

/** Names of model files as names of stored ones. */
function fileName(name: string): string {
  return name.replaceAll('/', '%2F')
}

/** Null where another tab, or another model object of this one, has it. Without locks the access handles decide. */
async function takeLock(name: string, patienceMs: number): Promise<(() => void) | null> {
  if (navigator.locks === undefined) return () => {}
  const signal = AbortSignal.timeout(patienceMs)
  const options: LockOptions = patienceMs === 0 ? { ifAvailable: true } : { signal }
  return await new Promise(resolve => {
    navigator.locks
      .request(`moeflux:${name}`, options, lock => {
        if (lock === null) {
          resolve(null)
          return
        }
        return new Promise<void>(release => resolve(release))
      })
      .catch(() => resolve(null))
  })
}

async function readInfo(folder: FileSystemDirectoryHandle): Promise<CachedInfo | null> {
  const bytes = await readChecked(folder, INFO)
  return bytes === null ? null : (JSON.parse(new TextDecoder().decode(bytes)) as CachedInfo)
}

async function readChecked(folder: FileSystemDirectoryHandle, name: string): Promise<Uint8Array | null> {
  try {
    const bytes = new Uint8Array(await (await (await folder.getFileHandle(name)).getFile()).arrayBuffer())
    const sum = new DataView(bytes.buffer).getUint32(0, true)
    const content = bytes.slice(SUM_BYTES)
    return xxHash32(content) === sum ? content : null
  } catch {
    return null // not there, or half written by a tab that was closed
  }
}

async function writeChecked(folder: FileSystemDirectoryHandle, name: string, content: Uint8Array): Promise<void> {
  const handle = await openSyncAccess(folder, name)
  try {
    const bytes = new Uint8Array(SUM_BYTES + content.length)
    new DataView(bytes.buffer).setUint32(0, xxHash32(content), true)
    bytes.set(content, SUM_BYTES)
    handle.truncate(0)
    if (handle.write(bytes, { at: 0 }) < bytes.length) throw new DOMException('no more room', 'QuotaExceededError')
  } finally {
    handle.close()
  }
}
