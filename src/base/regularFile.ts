// Opens files for reading, and nothing else: opening a named pipe waits for somebody to write to it, some devices act when
// they are opened, and others never end. Looks before it opens, opens without waiting, and looks again at what it got.
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats, statSync } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { FormatError } from './errors.js'

const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)

/** What the system refuses (no such file, no permission) comes as the system's own error. */
export async function openRegular(path: string): Promise<FileHandle> {
  checkKind(path, await stat(path))
  const handle = await open(path, FLAGS)
  try {
    checkKind(path, await handle.stat())
    return handle
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** A file descriptor. */
export function openRegularSync(path: string, moreFlags = 0): number {
  checkKind(path, statSync(path))
  const descriptor = openSync(path, FLAGS | moreFlags)
  try {
    checkKind(path, fstatSync(descriptor))
    return descriptor
  } catch (error) {
    closeSync(descriptor)
    throw error
  }
}

export async function readRegular(path: string): Promise<Buffer> {
  const handle = await openRegular(path)
  return await handle.readFile().finally(() => handle.close())
}

export function readRegularSync(path: string): Buffer {
  const descriptor = openRegularSync(path)
  try {
    return readFileSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

function checkKind(path: string, info: Stats): void {
  if (!info.isFile()) throw new FormatError('NOT_A_FILE', path, `is ${kindOf(info)}, not a file`)
}

function kindOf(info: Stats): string {
  if (info.isDirectory()) return 'a folder'
  if (info.isFIFO()) return 'a pipe'
  if (info.isSocket()) return 'a socket'
  return 'a device'
}
