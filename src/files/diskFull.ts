// A full disk, said so that people know which file it was about. The system's own error names none when a write fails.
import { statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { DiskFullError } from '../base/errors.js'

export function isDiskFull(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | null)?.code
  return code === 'ENOSPC' || code === 'EDQUOT'
}

/** Does what writes `path`. */
export async function writing<T>(path: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write()
  } catch (error) {
    if (!isDiskFull(error)) throw error
    throw new DiskFullError(path, null, await freeBytes(dirname(path)), { cause: error })
  }
}

/** Null where the folder, or the system, does not tell. */
export async function freeBytes(folder: string): Promise<number | null> {
  try {
    const { bavail, bsize } = await statfs(folder)
    return bavail * bsize
  } catch {
    return null
  }
}

/** The same for a folder that may not be there yet: of the nearest one above it. */
export async function freeSpace(folder: string): Promise<number | null> {
  const free = await freeBytes(folder)
  return free === null && dirname(folder) !== folder ? freeSpace(dirname(folder)) : free
}
