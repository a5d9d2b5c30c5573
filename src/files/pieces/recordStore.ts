// Records of one size in the origin-private file system, found by a number: experts by layer and index, pieces of the
// resident part by position. Records stand in the order in which they came, so the file is as long as what it holds. The
// index keeps a checksum of each; a record that does not match is dropped and counts as never stored. One tab writes (its
// access handles are exclusive), others read beside it.
//
//   <name>.index    u32 magic, u32 version, u32 record bytes, u32 0; then per record u32 key, u32 checksum
//   <name>.records  record n at n × record bytes
import { type FolderHandle, openSyncAccess, type StoredFileHandle, type SyncAccess } from './syncAccess.js'
import { xxHash32 } from './xxHash.js'

const MAGIC = 0x5352464d // 'MFRS'
const VERSION = 1
const HEADER_BYTES = 16
const ENTRY_BYTES = 8
const FREE = 0xffffffff // the key of a record that was dropped

export interface RecordStore {
  /** Records that are stored. */
  readonly count: number
  has(key: number): boolean
  /** Fills `target`; false where the record is not there, or was damaged. */
  read(key: number, target: Uint8Array): Promise<boolean>
  /** Throws QuotaExceededError where the browser gives no more room. */
  write(key: number, bytes: Uint8Array): void
  /** Forgets all keys from `begin` up to `end`. */
  drop(begin: number, end: number): void
  close(): void
}

/** The store of the one tab that writes. Synchronous access handles exist in workers only. */
export class WritableRecords implements RecordStore {
  private readonly places = new Map<number, number>() // key -> record
  private readonly sums: number[] = [] // by record
  private readonly free: number[] = []
  private closed = false

  private constructor(
    private readonly records: SyncAccess,
    private readonly index: SyncAccess,
    private readonly recordBytes: number,
    /** A damaged record was found and dropped. */
    private readonly onDamage: (key: number) => void,
  ) {
    const words = new Uint32Array(Math.floor(index.getSize() / 4))
    index.read(words, { at: 0 })
    const stored = Math.ceil(records.getSize() / recordBytes) // the last may be a shorter one
    for (const { key, sum, record } of parseIndex(words, recordBytes, stored)) {
      this.sums[record] = sum
      if (key === FREE || this.places.has(key)) this.free.push(record)
      else this.places.set(key, record)
    }
    if (this.sums.length > 0) return
    records.truncate(0)
    index.truncate(0)
    index.write(Uint32Array.of(MAGIC, VERSION, recordBytes, 0), { at: 0 })
  }

  static async open(
    folder: FolderHandle,
    name: string,
    recordBytes: number,
    onDamage: (key: number) => void,
  ): Promise<WritableRecords> {
    const records = await openSyncAccess(folder, `${name}.records`)
    try {
      const index = await openSyncAccess(folder, `${name}.index`)
      return new WritableRecords(records, index, recordBytes, onDamage)
    } catch (error) {
      records.close()
      throw error
    }
  }

  get count(): number {
    return this.places.size
  }

  has(key: number): boolean {
    return this.places.has(key)
  }

  async read(key: number, target: Uint8Array): Promise<boolean> {
    const record = this.places.get(key)
    if (record === undefined) return false
    try {
      const got = this.records.read(target, { at: record * this.recordBytes })
      if (got === target.length && xxHash32(target, key) === this.sums[record]) return true
      this.drop(key, key + 1)
    } catch {
      this.places.delete(key) // the user has cleared the site's data
    }
    this.onDamage(key)
    return false
  }

  write(key: number, bytes: Uint8Array): void {
    if (this.closed || this.places.has(key)) return
    const record = this.free.pop() ?? this.sums.length
    const entry = Uint32Array.of(key, xxHash32(bytes, key))
    try {
      writeAll(this.records, bytes, record * this.recordBytes)
      writeAll(this.index, entry, HEADER_BYTES + record * ENTRY_BYTES)
    } catch (error) {
      if (record < this.sums.length) this.free.push(record)
      throw error
    }
    this.sums[record] = entry[1]
    this.places.set(key, record)
  }

  drop(begin: number, end: number): void {
    for (const [key, record] of [...this.places]) {
      if (key < begin || key >= end) continue
      this.places.delete(key)
      this.free.push(record)
      this.index.write(Uint32Array.of(FREE, 0), { at: HEADER_BYTES + record * ENTRY_BYTES })
    }
  }

  /** Holds nothing from then on. */
  close(): void {
    if (this.closed) return
    this.closed = true
    this.places.clear()
    this.records.close()
    this.index.close()
  }
}

/** What another tab has stored so far. */
export class ReadOnlyRecords implements RecordStore {
  private readonly places = new Map<number, { readonly record: number; readonly sum: number }>()

  private constructor(
    private readonly file: StoredFileHandle,
    words: Uint32Array,
    stored: number,
    private readonly recordBytes: number,
  ) {
    for (const { key, sum, record } of parseIndex(words, recordBytes, stored)) {
      if (key !== FREE) this.places.set(key, { record, sum })
    }
  }

  /** Null where nothing is stored yet. */
  static async open(folder: FolderHandle, name: string, recordBytes: number): Promise<RecordStore | null> {
    try {
      const file = await folder.getFileHandle(`${name}.records`)
      const index = await (await folder.getFileHandle(`${name}.index`)).getFile()
      const bytes = await index.arrayBuffer()
      const words = new Uint32Array(bytes, 0, Math.floor(bytes.byteLength / 4))
      return new ReadOnlyRecords(file, words, Math.ceil((await file.getFile()).size / recordBytes), recordBytes)
    } catch {
      return null
    }
  }

  get count(): number {
    return this.places.size
  }

  has(key: number): boolean {
    return this.places.has(key)
  }

  async read(key: number, target: Uint8Array): Promise<boolean> {
    const place = this.places.get(key)
    if (place === undefined) return false
    const at = place.record * this.recordBytes
    try {
      // Asked for each time: a file that was written to since is another one.
      const bytes = new Uint8Array(await (await this.file.getFile()).slice(at, at + target.length).arrayBuffer())
      if (bytes.length === target.length && xxHash32(bytes, key) === place.sum) {
        target.set(bytes)
        return true
      }
    } catch {
      // the other tab has cleared its cache
    }
    this.places.delete(key)
    return false
  }

  write(): void {}

  drop(begin: number, end: number): void {
    for (const key of [...this.places.keys()]) if (key >= begin && key < end) this.places.delete(key)
  }

  close(): void {}
}

/** Nothing where the index is of something else. Entries past the records that are there are not trusted. */
function* parseIndex(words: Uint32Array, recordBytes: number, stored: number) {
  if (words[0] !== MAGIC || words[1] !== VERSION || words[2] !== recordBytes) return
  const count = Math.min(stored, Math.floor((words.length * 4 - HEADER_BYTES) / ENTRY_BYTES))
  for (let record = 0; record < count; record++) {
    const at = (HEADER_BYTES + record * ENTRY_BYTES) / 4
    yield { key: words[at], sum: words[at + 1], record }
  }
}

function writeAll(handle: SyncAccess, bytes: Uint8Array | Uint32Array, at: number): void {
  const written = handle.write(bytes, { at })
  if (written < bytes.byteLength) throw new DOMException('the file takes no more', 'QuotaExceededError')
}
