// Pieces of remote files in a folder, as many as a budget allows: one file per piece, those unused for longest go first.
// Several processes may share it. A piece appears whole or not at all; whether its bytes are right is not known here. A disk
// that cannot be written costs nothing but the cache.

import { randomUUID } from 'node:crypto'
import { mkdir, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { messageOf } from '../../base/errors.js'
import { readRegular } from '../../base/regularFile.js'

const SPARE_SHARE = 16 // room is made for a sixteenth of the budget at a time
const USED_MS = 60_000 // how exact the time of use is kept

interface Piece {
  readonly size: number
  used: number
}

export class DiskCache {
  private readonly pieces = new Map<string, Piece>() // by path below the folder
  private bytes = 0
  private making: Promise<void> | null = null
  readonly counters = { hits: 0, misses: 0, writes: 0, evictions: 0 }

  private constructor(
    readonly folder: string,
    private readonly budget: number,
    private readonly onNotice: (line: string) => void,
  ) {}

  static async open(folder: string, budget: number, onNotice: (line: string) => void): Promise<DiskCache> {
    const cache = new DiskCache(folder, budget, onNotice)
    for (const name of await readdir(folder, { recursive: true }).catch(() => [])) {
      const info = await stat(join(folder, name)).catch(() => null)
      if (info?.isFile() && !name.endsWith('.part')) cache.note(name, info.size, info.mtimeMs)
    }
    await cache.makeRoom(0)
    return cache
  }

  /** Null where it is not there, or not of that size. */
  async read(name: string, size: number): Promise<Uint8Array | null> {
    const bytes = await readRegular(join(this.folder, name)).catch(() => null)
    if (bytes === null || bytes.length !== size) {
      this.counters.misses++
      return null
    }
    this.counters.hits++
    const now = Date.now()
    const piece = this.pieces.get(name)
    if (piece === undefined || now - piece.used > USED_MS) {
      void utimes(join(this.folder, name), now / 1000, now / 1000).catch(() => {})
    }
    this.note(name, size, now)
    return bytes
  }

  async write(name: string, bytes: Uint8Array): Promise<void> {
    if (bytes.length > this.budget) return
    const path = join(this.folder, name)
    const temporary = join(this.folder, `${randomUUID()}.part`)
    try {
      await this.makeRoom(bytes.length)
      await mkdir(dirname(path), { recursive: true })
      await writeFile(temporary, bytes)
      await rename(temporary, path)
      this.note(name, bytes.length, Date.now())
      this.counters.writes++
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => {})
      this.tellOnce(`the cache of remote models cannot be written: ${messageOf(error)}`)
    }
  }

  async remove(name: string): Promise<void> {
    this.forget(name)
    await rm(join(this.folder, name), { force: true }).catch(() => {})
  }

  private note(name: string, size: number, used: number): void {
    this.forget(name)
    this.pieces.set(name, { size, used })
    this.bytes += size
  }

  private forget(name: string): void {
    this.bytes -= this.pieces.get(name)?.size ?? 0
    this.pieces.delete(name)
  }

  private async makeRoom(bytes: number): Promise<void> {
    await this.making
    if (this.bytes + bytes <= this.budget) return
    this.making = this.evict(this.budget - bytes - this.budget / SPARE_SHARE)
    await this.making
    this.making = null
  }

  private async evict(most: number): Promise<void> {
    const oldestFirst = [...this.pieces].sort(([, a], [, b]) => a.used - b.used)
    for (const [name] of oldestFirst) {
      if (this.bytes <= most) return
      await this.remove(name)
      this.counters.evictions++
    }
  }

  private readonly told = new Set<string>()
  private tellOnce(line: string): void {
    if (this.told.has(line)) return
    this.told.add(line)
    this.onNotice(line)
  }
}
