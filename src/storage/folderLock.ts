// One process at a time works in a folder. The lock is a file that names its owner and is touched while the owner lives,
// so that what a killed process left behind does not lock for ever.
import { randomUUID } from 'node:crypto'
import { mkdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const TOUCH_MS = 2_000
const SILENT_MS = 60_000 // an owner that did not touch its lock for so long is gone, whatever its process id says
const POLL_MS = 250

export interface FolderLock {
  release(): Promise<void>
}

export interface LockOptions {
  readonly signal?: AbortSignal
  /** Called once when another process has the lock; it is waited for. */
  readonly onWait?: () => void
}

export async function lockFile(path: string, options: LockOptions = {}): Promise<FolderLock> {
  const token = randomUUID()
  const content = JSON.stringify({ pid: process.pid, host: hostname(), token })
  await mkdir(dirname(path), { recursive: true })
  for (let waited = false; ; ) {
    options.signal?.throwIfAborted()
    try {
      await writeFile(path, content, { flag: 'wx' })
      return holdLock(path, content)
    } catch (error) {
      // Windows reports a file that is just being removed as EPERM or EBUSY.
      const { code } = error as NodeJS.ErrnoException
      if (code !== 'EEXIST' && code !== 'EPERM' && code !== 'EBUSY') throw error
      if (code !== 'EEXIST' && (await stat(path).catch(() => null)) === null) throw error
    }
    if (await isAbandoned(path)) {
      // Only one of several waiting processes succeeds in taking it away.
      const removed = `${path}.${token}`
      if (
        await rename(path, removed).then(
          () => true,
          () => false,
        )
      )
        await rm(removed, { force: true })
      continue
    }
    if (!waited) options.onWait?.()
    waited = true
    await sleep(POLL_MS, undefined, { signal: options.signal })
  }
}

function holdLock(path: string, content: string): FolderLock {
  const timer = setInterval(() => {
    const now = new Date()
    utimes(path, now, now).catch(() => {})
  }, TOUCH_MS)
  timer.unref()
  return {
    async release() {
      clearInterval(timer)
      const now = await readFile(path, 'utf8').catch(() => null)
      if (now === content) await rm(path, { force: true })
    },
  }
}

async function isAbandoned(path: string): Promise<boolean> {
  const info = await stat(path).catch(() => null)
  if (info === null) return false
  if (Date.now() - info.mtimeMs > SILENT_MS) return true
  try {
    const { pid, host } = JSON.parse(await readFile(path, 'utf8')) as { pid: number; host: string }
    return host === hostname() && !isAlive(pid)
  } catch {
    return false // being written or just removed: look again
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
