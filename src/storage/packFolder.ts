// Converts one folder of the disk into another, alone: a second process that wants the same target waits.
import { rmdir, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { type ConvertOptions, type ConvertResult, convert } from './convert.js'
import { lockFile } from './folderLock.js'
import { openNodeFolder } from './nodeFolder.js'
import { openOutputFolder } from './outputFolder.js'
import { LOCK_NAME } from './packedNames.js'

export async function packFolder(source: string, target: string, options: ConvertOptions = {}): Promise<ConvertResult> {
  const from = await openNodeFolder(source, { links: 'inside' })
  const wasThere = (await stat(target).catch(() => null)) !== null
  const to = await openOutputFolder(target)
  const lock = await lockFile(join(resolve(target), LOCK_NAME), {
    signal: options.signal,
    onWait: () => options.onNotice?.(`another process is writing ${to.location}: waiting for it`),
  })
  try {
    return await convert(from, to, options)
  } finally {
    await lock.release()
    // A conversion that was refused leaves no empty folder behind.
    if (!wasThere) await rmdir(to.location).catch(() => {})
  }
}
