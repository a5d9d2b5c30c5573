// Where a conversion writes: files that appear under their name only when they are whole and on the disk. The interface
// is small so that tests can stand in for a disk that fills up.
import { createHash } from 'node:crypto'
import { type FileHandle, mkdir, open, readdir, readFile, rename, rm, stat, statfs } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { TargetError } from '../errors.js'
import type { FileChecksum } from './manifest.js'
import { LOCK_NAME } from './packedNames.js'

export interface OutputFolder {
  readonly location: string
  freeBytes(): Promise<number>
  /** Names of all files, with `/`; those that a crash left unfinished are removed. */
  sweep(): Promise<string[]>
  sizeOf(name: string): Promise<number | null>
  readText(name: string): Promise<string | null>
  /** Starts a file under a temporary name. */
  create(name: string): Promise<OutputFile>
  remove(name: string): Promise<void>
}

export interface OutputFile {
  append(bytes: Uint8Array): Promise<void>
  /** Flushes to the disk and gives the file its name. */
  finish(): Promise<FileChecksum>
  /** Forgets the file. */
  discard(): Promise<void>
}

const TEMPORARY = '.partial'

export async function openOutputFolder(path: string): Promise<OutputFolder> {
  if (path === '') throw new TargetError("''", 'an empty name is no folder')
  const location = resolve(path)
  await mkdir(location, { recursive: true })
  return new NodeOutputFolder(location)
}

class NodeOutputFolder implements OutputFolder {
  constructor(readonly location: string) {}

  async freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.location)
    return bavail * bsize
  }

  async sweep(): Promise<string[]> {
    const names: string[] = []
    for (const entry of await readdir(this.location, { recursive: true, withFileTypes: true })) {
      if (entry.isDirectory()) continue
      const name = join(entry.parentPath, entry.name)
        .slice(this.location.length + 1)
        .replaceAll('\\', '/')
      if (name.endsWith(TEMPORARY)) await this.remove(name)
      else if (!name.startsWith(LOCK_NAME)) names.push(name)
    }
    return names.sort()
  }

  async sizeOf(name: string): Promise<number | null> {
    const info = await stat(this.path(name)).catch(() => null)
    return info?.isFile() ? info.size : null
  }

  readText(name: string): Promise<string | null> {
    return readFile(this.path(name), 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
  }

  async create(name: string): Promise<OutputFile> {
    const path = this.path(name)
    await mkdir(dirname(path), { recursive: true })
    return new NodeOutputFile(path, await open(path + TEMPORARY, 'w'))
  }

  remove(name: string): Promise<void> {
    return rm(this.path(name), { force: true })
  }

  private path(name: string): string {
    return join(this.location, ...name.split('/'))
  }
}

class NodeOutputFile implements OutputFile {
  private readonly hash = createHash('sha256')
  private size = 0

  constructor(
    private readonly path: string,
    private readonly handle: FileHandle,
  ) {}

  async append(bytes: Uint8Array): Promise<void> {
    this.hash.update(bytes)
    let done = 0
    while (done < bytes.byteLength) {
      const { bytesWritten } = await this.handle.write(bytes, done, bytes.byteLength - done, this.size + done)
      done += bytesWritten
    }
    this.size += bytes.byteLength
  }

  async finish(): Promise<FileChecksum> {
    await this.handle.sync()
    await this.handle.close()
    await rename(this.path + TEMPORARY, this.path)
    await syncFolder(dirname(this.path))
    return { size: this.size, sha256: this.hash.digest('hex') }
  }

  async discard(): Promise<void> {
    await this.handle.close().catch(() => {})
    await rm(this.path + TEMPORARY, { force: true })
  }
}

/** Makes the rename itself durable. Windows cannot open folders, and does not need it. */
async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r').catch(() => null)
  if (handle === null) return
  await handle.sync().catch(() => {})
  await handle.close()
}
