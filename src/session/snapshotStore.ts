// States of sequences in a folder, one file each, for several processes at once. A file appears whole or not at all; the
// ones least recently used go when the folder holds more than its budget. What is in a file, the store does not look at.
import { randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { OptionError } from '../errors.js'
import { writing } from '../storage/diskFull.js'
import { readRegular } from '../storage/regularFile.js'
import type { Prefix } from './prefixMatch.js'
import type { StateStore } from './storeWriter.js'

export interface SnapshotStoreOptions {
  /** Bytes that all files together may take. Default 8 GiB. */
  readonly budget?: number
}

const DEFAULT_BUDGET = 8 * 2 ** 30
const LARGEST_ENTRY = 2 * 2 ** 30 - 1 // what one read of a file can take
const ABANDONED_MS = 3_600_000
const NAME = /^([0-9a-f]{8,64})-(\d{1,10})-([0-9a-f]{16})\.state$/
const TEMPORARY = /^\..+\.part$/

export class SnapshotStore implements StateStore {
  readonly budget: number

  constructor(
    readonly folder: string,
    options: SnapshotStoreOptions = {},
  ) {
    this.budget = options.budget ?? DEFAULT_BUDGET
    if (!(this.budget >= 0)) throw new OptionError('budget', this.budget, 'a number of bytes')
  }

  get maxEntryBytes(): number {
    return Math.min(this.budget / 2, LARGEST_ENTRY)
  }

  async list(fingerprint: string): Promise<Prefix[]> {
    const model = shortFingerprint(fingerprint)
    const prefixes: Prefix[] = []
    for (const name of await this.names()) {
      const match = NAME.exec(name)
      if (match && match[1] === model) prefixes.push({ length: Number(match[2]), key: match[3] })
    }
    return prefixes
  }

  /** Null where another process has removed it meanwhile. Reading counts as use. */
  async read(fingerprint: string, prefix: Prefix): Promise<Uint8Array | null> {
    const path = this.path(fingerprint, prefix)
    try {
      const bytes = await readRegular(path)
      const now = new Date()
      await utimes(path, now, now).catch(() => {}) // a read-only folder serves all the same
      return bytes
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      throw error
    }
  }

  async write(fingerprint: string, prefix: Prefix, bytes: Uint8Array): Promise<void> {
    if (bytes.length > this.budget) return
    await mkdir(this.folder, { recursive: true })
    await this.makeRoom(bytes.length)
    const temporary = join(this.folder, `.${randomUUID()}.part`)
    try {
      await writing(this.path(fingerprint, prefix), async () => {
        const file = await open(temporary, 'wx')
        try {
          await file.writeFile(bytes)
          await file.sync()
        } finally {
          await file.close()
        }
        await rename(temporary, this.path(fingerprint, prefix))
      })
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => {})
      throw error
    }
  }

  async drop(fingerprint: string, prefix: Prefix): Promise<void> {
    await rm(this.path(fingerprint, prefix), { force: true })
  }

  /** Removes the files used longest ago until `bytes` more fit, and what killed processes left half-written. */
  private async makeRoom(bytes: number): Promise<void> {
    const files: { path: string; size: number; used: number }[] = []
    for (const name of await this.names()) {
      const temporary = TEMPORARY.test(name)
      if (!temporary && !NAME.test(name)) continue
      const path = join(this.folder, name)
      const info = await stat(path).catch(() => null)
      if (info === null) continue
      if (!temporary) files.push({ path, size: info.size, used: info.mtimeMs })
      else if (Date.now() - info.mtimeMs > ABANDONED_MS) await rm(path, { force: true }).catch(() => {})
    }
    let total = files.reduce((sum, { size }) => sum + size, bytes)
    for (const { path, size } of files.sort((a, b) => a.used - b.used)) {
      if (total <= this.budget) return
      await rm(path, { force: true }).catch(() => {})
      total -= size
    }
  }

  private async names(): Promise<string[]> {
    try {
      return await readdir(this.folder)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
      throw error
    }
  }

  private path(fingerprint: string, { length, key }: Prefix): string {
    return join(this.folder, `${shortFingerprint(fingerprint)}-${length}-${key}.state`)
  }
}

/** Only hexadecimal digits reach a file name. */
function shortFingerprint(fingerprint: string): string {
  const hex = fingerprint.toLowerCase().replace(/[^0-9a-f]/g, '')
  return hex.slice(0, 32).padEnd(8, '0')
}
