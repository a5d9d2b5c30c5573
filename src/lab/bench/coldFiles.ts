// Drops files from the system's page cache, so that a benchmark begins cold. Node has no call for it; GNU dd has (it asks
// the kernel with posix_fadvise), and needs no privileges. Elsewhere the caller is told that it could not be done.
import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

/** True where every file of the folder was dropped. */
export async function dropFromPageCache(folder: string): Promise<boolean> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const run = promisify(execFile)
  try {
    for (const entry of entries) {
      if (!entry.isFile() || !entry.name.endsWith('.bin')) continue
      const file = join(entry.parentPath, entry.name)
      await run('dd', [`if=${file}`, 'iflag=nocache', 'count=0', 'status=none'])
    }
    return true
  } catch {
    return false
  }
}
