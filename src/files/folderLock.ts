// One process at a time works in a place, also when processes are killed or suspended on the way.
//
// The lock is a folder, and a claim to it is a folder in that one, of a name that is never used twice and that says who
// claims. Who wants the lock looks for claims. Where there is one of somebody who may be alive, it waits. Else it makes its
// own claim, looks again, and holds the lock if all it sees beside its own are the claims that it found abandoned before;
// where there is any other, it takes its own back and tries again after a random while. Of two that claim, the one that
// claims later looks after both claims are there, sees the other's, and gives way. Names are unique, so that nobody can
// take away another claim than the one it looked at.
//
// A claim is abandoned when its process is known to be dead; or when it was not touched during many looks, because a
// process of another machine, or a suspended one, cannot be told from a dead one. A suspended one may wake up. That is why
// the holder keeps what it is writing inside its claim, and moves it out by `rename` when it is whole (and moves in what it
// removes): the next holder first takes the claim away, with all that is in it, and from then on no such rename can
// succeed. What a former holder got done before that, the next one finds; what comes after fails. The former holder is
// told by `signal` and by `explain`.
//
// A look counts only when the looker itself was awake for it, so that a machine that slept takes nobody for dead.
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { mkdir, readdir, rename, rm, rmdir, stat, utimes } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { LockedError, LockLostError, TargetError } from '../base/errors.js'

interface FolderLock {
  /** The holder's own: gone, with all that is in it, once somebody else has the lock. */
  readonly folder: string
  /** Aborts with LockLostError when that is noticed. */
  readonly signal: AbortSignal
  /** An error that came up while the lock was held: LockLostError where it is the reason, else the error itself. */
  explain(error: unknown): Promise<unknown>
  release(): Promise<void>
}

interface LockOptions {
  readonly signal?: AbortSignal
  /** Called once when another process has the lock; it is waited for. */
  readonly onWait?: () => void
  /** Throw LockedError instead of waiting. */
  readonly wait?: boolean
  /** Called with what a former holder left behind, before it is removed. `dead`: nobody can still be writing to it. */
  readonly inherit?: (folder: string, dead: boolean) => Promise<void>
  readonly pace?: Partial<LockPace>
}

export interface LockPace {
  readonly touchMs: number // between signs of life
  readonly pollMs: number // between looks of who waits
  readonly silentPolls: number // looks without a sign of life after which a claim is abandoned
}

const PACE: LockPace = { touchMs: 2_000, pollMs: 250, silentPolls: 120 }
const HELD = 'held-'
const LEFT = { dead: 'dead-', silent: 'silent-' } // of former holders, on the way to be removed

type Left = keyof typeof LEFT

export async function lockFolder(path: string, options: LockOptions = {}): Promise<FolderLock> {
  const attempts = new Attempts(path, options)
  for (let waited = false; ; ) {
    options.signal?.throwIfAborted()
    const outcome = await attempts.next()
    if (typeof outcome === 'object') return outcome
    if (outcome === 'held') {
      if (options.wait === false) throw new LockedError(path)
      if (!waited) options.onWait?.()
      waited = true
    }
    await attempts.pause(outcome === 'held')
  }
}

class Attempts {
  private readonly pace: LockPace
  private readonly seen = new Map<string, { mtimeMs: number; poll: number }>() // since which poll a claim is untouched
  private readonly stuck = new Set<string>() // claims that cannot be taken away: who holds them must be alive
  private polls = 0

  constructor(
    private readonly path: string,
    private readonly options: LockOptions,
  ) {
    this.pace = { ...PACE, ...options.pace }
  }

  async pause(isPoll: boolean): Promise<void> {
    const { pollMs } = this.pace
    await sleep(isPoll ? pollMs : Math.random() * pollMs, undefined, { signal: this.options.signal })
    if (isPoll) this.polls++
  }

  /** The lock; or that somebody has it, or that others want it at this very moment. */
  async next(): Promise<FolderLock | 'held' | 'contended'> {
    if (!(await this.makeFolder())) return 'contended'
    const abandoned = new Map<string, Left>()
    for (const name of await this.claims()) {
      const left = await this.judge(name)
      if (left === null) return 'held'
      abandoned.set(name, left)
    }
    const own = HELD + ownerName(thisOwner()) + randomBytes(12).toString('hex')
    const folder = join(this.path, own)
    try {
      await mkdir(folder)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 'contended'
      throw error
    }
    const lock = new HeldLock(this.path, folder, this.pace.touchMs)
    try {
      const claims = await this.claims()
      const mine = claims.includes(own) && claims.every(name => name === own || abandoned.has(name))
      if (mine && (await this.takeOver(abandoned))) return lock
    } catch (error) {
      await lock.release()
      throw error
    }
    await lock.release()
    return 'contended'
  }

  /** False where it was there and is not any more: who released the lock removed it. */
  private async makeFolder(): Promise<boolean> {
    await mkdir(dirname(this.path), { recursive: true })
    try {
      await mkdir(this.path)
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
    const info = await stat(this.path).catch(() => null)
    if (info?.isDirectory() === false)
      throw new TargetError(this.path, 'is no folder, and a lock must be one: remove it')
    return info !== null
  }

  /** Removes what former holders left. False where one of them cannot be kept from writing. */
  private async takeOver(abandoned: ReadonlyMap<string, Left>): Promise<boolean> {
    for (const [name, left] of abandoned) {
      try {
        await rename(join(this.path, name), join(this.path, LEFT[left] + name.slice(HELD.length)))
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue
        this.stuck.add(name) // on Windows a folder in which files are open
        return false
      }
    }
    for (const name of await readdir(this.path)) {
      const dead = name.startsWith(LEFT.dead)
      if (!dead && !name.startsWith(LEFT.silent)) continue
      const folder = join(this.path, name)
      await this.options.inherit?.(folder, dead)
      await rm(folder, { recursive: true, force: true, maxRetries: 5 })
    }
    return true
  }

  private async judge(name: string): Promise<Left | null> {
    if (this.stuck.has(name)) return null
    const owner = parseOwner(name.slice(HELD.length))
    if (owner !== null && isDead(owner)) return 'dead'
    const info = await stat(join(this.path, name)).catch(() => null)
    if (info === null) return null // released just now: look again
    const before = this.seen.get(name)
    if (before?.mtimeMs === info.mtimeMs) return this.polls - before.poll >= this.pace.silentPolls ? 'silent' : null
    this.seen.set(name, { mtimeMs: info.mtimeMs, poll: this.polls })
    return null
  }

  private async claims(): Promise<string[]> {
    const names = await readdir(this.path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return []
      throw error
    })
    return names.filter(name => name.startsWith(HELD))
  }
}

class HeldLock implements FolderLock {
  private readonly lost = new AbortController()
  private readonly timer: NodeJS.Timeout

  constructor(
    private readonly path: string,
    readonly folder: string,
    touchMs: number,
  ) {
    this.timer = setInterval(() => void this.touch(), touchMs)
    this.timer.unref()
  }

  get signal(): AbortSignal {
    return this.lost.signal
  }

  async explain(error: unknown): Promise<unknown> {
    if (!this.lost.signal.aborted) await this.touch()
    if (!this.lost.signal.aborted || error instanceof LockLostError) return error
    return new LockLostError(this.path, { cause: error })
  }

  async release(): Promise<void> {
    clearInterval(this.timer)
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 })
    await rmdir(this.path).catch(() => {}) // others are waiting
  }

  private async touch(): Promise<void> {
    const now = new Date()
    try {
      await utimes(this.folder, now, now)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code !== 'ENOENT' && code !== 'ENOTDIR') return
      clearInterval(this.timer)
      this.lost.abort(new LockLostError(this.path))
    }
  }
}

/**
 * A process, as names of claims have it. Its id alone does not tell: after a crash another program
 * gets the same one, and in another container it means another process.
 */
interface LockOwner {
  readonly pid: number
  readonly started: string | null // null: this system does not tell
  readonly machine: string
}

const NAME = /^(\d{1,10})-(\d{1,20}|x)-([0-9a-f]{16})-/

/** The start of a name; with something unique appended it is the name of one claim. */
export function ownerName({ pid, started, machine }: LockOwner): string {
  return `${pid}-${started ?? 'x'}-${machine}-`
}

export function parseOwner(name: string): LockOwner | null {
  const match = NAME.exec(name)
  return match && { pid: Number(match[1]), started: match[2] === 'x' ? null : match[2], machine: match[3] }
}

let self: LockOwner | null = null

export function thisOwner(): LockOwner {
  self ??= { pid: process.pid, started: statusOf(process.pid)?.started ?? null, machine: thisMachine() }
  return self
}

/** True only where it is certain: a process of another machine, or one that merely sleeps, is never known to be dead. */
export function isDead({ pid, started, machine }: LockOwner): boolean {
  if (machine !== thisOwner().machine) return false
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return true
  }
  const status = statusOf(pid)
  if (status === null) return false
  return status.state === 'Z' || status.state === 'X' || (started !== null && status.started !== started)
}

/** Processes know each other by their ids only within one boot of one machine, and one namespace of it. */
function thisMachine(): string {
  const parts = [
    hostname(),
    quietly(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8')),
    quietly(() => readlinkSync('/proc/self/ns/pid')),
  ]
  return createHash('sha256').update(parts.join('\n')).digest('hex').slice(0, 16)
}

/** What Linux tells of a process; null elsewhere. */
function statusOf(pid: number): { state: string; started: string } | null {
  const text = quietly(() => readFileSync(`/proc/${pid}/stat`, 'utf8'))
  if (text === null) return null
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ') // the name before may hold anything
  return fields.length > 19 ? { state: fields[0], started: fields[19] } : null
}

function quietly(read: () => string): string | null {
  try {
    return read()
  } catch {
    return null
  }
}
