// A prefix store in a folder, for several processes at once: one file per object, a folder per namespace. A file appears
// whole or not at all; the ones least recently used go when there are more than the budget allows.
import { randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rename, rm, stat, utimes } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { OptionError } from '../base/errors.js'
import { readRegular } from '../base/regularFile.js'
import { writing } from '../files/diskFull.js'
import type { PrefixStore } from './prefixStore.js'

export interface FolderStoreOptions {
  /** Bytes that all files together may take. Default 8 GiB. */
  readonly budget?: number
}

const DEFAULT_BUDGET = 8 * 2 ** 30
const ABANDONED_MS = 3_600_000
const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]*\/(kv|state|note)-[0-9a-f]{64}$/
const EARLIER = /^[0-9a-f]{8,64}-\d{1,10}-[0-9a-f]{16}\.state$/ // whole states in one file: nobody reads them any more
const TEMPORARY = /^\..+\.part$/
const ROOM_CHECK_SHARE = 16 // the folder is looked through after each sixteenth of the budget

export class FolderStore implements PrefixStore {
  readonly budget: number
  private written = Number.POSITIVE_INFINITY // since the folder was looked through

  constructor(
    readonly location: string,
    options: FolderStoreOptions = {},
  ) {
    this.budget = options.budget ?? DEFAULT_BUDGET
    if (!(this.budget >= 0)) throw new OptionError('budget', this.budget, 'a number of bytes')
  }

  async has(names: readonly string[]): Promise<boolean[]> {
    await this.needFolder()
    const isThere = async (name: string) => (await stat(this.path(name)).catch(orNull))?.isFile() ?? false
    return await Promise.all(names.map(async name => NAME.test(name) && (await isThere(name))))
  }

  /** Reading counts as use. */
  async get(names: readonly string[]): Promise<(Uint8Array | null)[]> {
    return await Promise.all(names.map(name => this.read(this.path(name))))
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    if (bytes.length > this.budget) return
    const path = this.path(name)
    await mkdir(dirname(path), { recursive: true })
    await this.makeRoom(bytes.length)
    const temporary = join(this.location, `.${randomUUID()}.part`)
    try {
      await writing(path, async () => {
        const file = await open(temporary, 'wx')
        try {
          await file.writeFile(bytes)
          await file.sync()
        } finally {
          await file.close()
        }
        await rename(temporary, path)
      })
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => {})
      throw error
    }
  }

  async remove(name: string): Promise<void> {
    await rm(this.path(name), { force: true })
  }

  async close(): Promise<void> {}

  private async read(path: string): Promise<Uint8Array | null> {
    try {
      const bytes = await readRegular(path)
      const now = new Date()
      await utimes(path, now, now).catch(() => {}) // a read-only folder serves all the same
      return bytes
    } catch (error) {
      return orNull(error as NodeJS.ErrnoException)
    }
  }

  /** A file in the folder's place is a mistake to be told; no folder is an empty store. */
  private async needFolder(): Promise<void> {
    await readdir(this.location).catch(orNull)
  }

  /** Removes the files used longest ago until `bytes` more fit, and what killed processes left half-written. */
  private async makeRoom(bytes: number): Promise<void> {
    this.written += bytes
    if (this.written < this.budget / ROOM_CHECK_SHARE) return
    const files: { path: string; size: number; used: number }[] = []
    for (const name of await readdir(this.location, { recursive: true })) {
      const temporary = TEMPORARY.test(name)
      if (!temporary && !EARLIER.test(name) && !NAME.test(name.replaceAll('\\', '/'))) continue
      const path = join(this.location, name)
      const info = await stat(path).catch(() => null)
      if (info === null) continue
      if (!temporary) files.push({ path, size: info.size, used: info.mtimeMs })
      else if (Date.now() - info.mtimeMs > ABANDONED_MS) await rm(path, { force: true }).catch(() => {})
    }
    // Room for what comes before the next look, too.
    const most = this.budget - this.budget / ROOM_CHECK_SHARE
    let total = files.reduce((sum, { size }) => sum + size, bytes)
    for (const { path, size } of files.sort((a, b) => a.used - b.used)) {
      if (total <= most) break
      await rm(path, { force: true }).catch(() => {})
      total -= size
    }
    this.written = total > most ? Number.POSITIVE_INFINITY : 0
  }

  private path(name: string): string {
    if (!NAME.test(name)) throw new OptionError('name', name, 'namespace/kv-…, namespace/state-… or namespace/note-…') // no path in it
    return join(this.location, ...name.split('/'))
  }
}

function orNull(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null
  throw error
}
