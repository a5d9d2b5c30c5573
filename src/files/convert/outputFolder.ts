// Where a conversion writes: files that appear under their name only when they are whole and on the disk. They grow in a
// work folder that the writer has to itself (see folderLock.ts), and what is removed goes through it: without that folder
// nothing can be changed here any more. The interface is small so that tests can stand in for a disk that fills up.
import { createHash } from 'node:crypto'
import { type FileHandle, mkdir, open, readdir, rename, rm, rmdir, stat, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { readRegular } from '../../base/regularFile.js'
import type { FileChecksum } from '../packed/manifest.js'
import { LOCK_NAME } from '../packed/packedNames.js'

export interface OutputFolder {
  readonly location: string
  freeBytes(): Promise<number>
  /** Names of all files, with `/`. */
  names(): Promise<string[]>
  sizeOf(name: string): Promise<number | null>
  readText(name: string): Promise<string | null>
  /** Starts a file in the work folder. */
  create(name: string): Promise<OutputFile>
  /** Removes a file where there is one, and the folder that it leaves empty. */
  remove(name: string): Promise<void>
}

export interface OutputFile {
  append(bytes: Uint8Array): Promise<void>
  /** Flushes to the disk and gives the file its name. */
  finish(): Promise<FileChecksum>
  /** Forgets the file. */
  discard(): Promise<void>
}

/** Both folders must be there, on one disk. */
export function openOutputFolder(location: string, work: string): OutputFolder {
  return new NodeOutputFolder(location, work)
}

class NodeOutputFolder implements OutputFolder {
  private temporaries = 0

  constructor(
    readonly location: string,
    private readonly work: string,
  ) {}

  async freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.location)
    return bavail * bsize
  }

  async names(): Promise<string[]> {
    const names: string[] = []
    for (const entry of await readdir(this.location, { recursive: true, withFileTypes: true })) {
      if (entry.isDirectory()) continue
      const name = join(entry.parentPath, entry.name)
        .slice(this.location.length + 1)
        .replaceAll('\\', '/')
      if (!name.startsWith(LOCK_NAME)) names.push(name)
    }
    return names.sort()
  }

  async sizeOf(name: string): Promise<number | null> {
    const info = await stat(this.path(name)).catch(() => null)
    return info?.isFile() ? info.size : null
  }

  async readText(name: string): Promise<string | null> {
    try {
      return (await readRegular(this.path(name))).toString('utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      throw error
    }
  }

  async create(name: string): Promise<OutputFile> {
    const temporary = this.temporary()
    return new NodeOutputFile(this.path(name), temporary, await open(temporary, 'wx'))
  }

  async remove(name: string): Promise<void> {
    const path = this.path(name)
    const temporary = this.temporary()
    try {
      await rename(path, temporary)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      await stat(this.work) // where that is gone, nothing is ours to remove
      return
    }
    await rm(temporary, { force: true })
    if (dirname(path) !== this.location) await rmdir(dirname(path)).catch(() => {})
  }

  private temporary(): string {
    return join(this.work, String(this.temporaries++))
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
    private readonly temporary: string,
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
    await mkdir(dirname(this.path), { recursive: true })
    await rename(this.temporary, this.path)
    await syncFolder(dirname(this.path))
    return { size: this.size, sha256: this.hash.digest('hex') }
  }

  async discard(): Promise<void> {
    await this.handle.close().catch(() => {})
    await rm(this.temporary, { force: true })
  }
}

/** Makes the rename itself durable. Windows cannot open folders, and does not need it. */
async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r').catch(() => null)
  if (handle === null) return
  await handle.sync().catch(() => {})
  await handle.close()
}
