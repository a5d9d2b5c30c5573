// Converts into a folder of the disk, alone: a second process that wants the same target waits. Where it fails before
// anything is worth keeping, the disk is as it was before, folders included.
import { mkdir, rmdir } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { TargetError } from '../../base/errors.js'
import { type LockPace, lockFolder } from '../folderLock.js'
import { openSource } from '../openSource.js'
import { LOCK_NAME } from '../packed/packedNames.js'
import type { Folder } from '../source.js'
import { type ConvertOptions, type ConvertResult, convert } from './convert.js'
import { openOutputFolder } from './outputFolder.js'

export interface PackOptions extends ConvertOptions {
  /** For tests: how soon a silent process counts as gone. */
  readonly lockPace?: Partial<LockPace>
}

/** `source`: a folder, or a GGUF file. */
export async function packFolder(source: string, target: string, options: PackOptions = {}): Promise<ConvertResult> {
  return await packInto(await openSource(source), target, options)
}

export async function packInto(source: Folder, target: string, options: PackOptions = {}): Promise<ConvertResult> {
  if (target === '') throw new TargetError("''", 'an empty name is no folder')
  const location = resolve(target)
  const made = await makeFolder(location)
  try {
    const lock = await lockFolder(join(location, LOCK_NAME), {
      signal: options.signal,
      pace: options.lockPace,
      onWait: () => options.onNotice?.(`another process is writing ${location}: waiting for it`),
    })
    try {
      const signal = options.signal === undefined ? lock.signal : AbortSignal.any([options.signal, lock.signal])
      return await convert(source, openOutputFolder(location, lock.folder), { ...options, signal })
    } catch (error) {
      throw await lock.explain(error)
    } finally {
      await lock.release()
    }
  } catch (error) {
    if (made !== undefined) await removeEmpty(location, made)
    throw error
  }
}

/** Makes a folder that work is written into; the first that had to be made, where one had. */
export async function makeFolder(location: string): Promise<string | undefined> {
  try {
    return await mkdir(location, { recursive: true })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') throw new TargetError(location, 'is a file, and a folder would be written there')
    if (code === 'ENOTDIR') throw new TargetError(location, 'a part of this path is a file, not a folder')
    throw error
  }
}

/** Removes `folder` and those above it up to `top`, as far as they are empty. */
async function removeEmpty(folder: string, top: string): Promise<void> {
  try {
    for (let path = folder; ; path = dirname(path)) {
      await rmdir(path)
      if (path === top) return
    }
  } catch {} // somebody else uses it
}
