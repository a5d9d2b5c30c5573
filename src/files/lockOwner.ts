// Who holds a lock, in a name: which machine, which process of it, and since when that process runs. A process id alone
// says little: after a crash another program gets the same one, and in another container it means another process.
import { createHash } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

export interface LockOwner {
  readonly pid: number
  readonly started: string | null // null: this system does not tell
  readonly machine: string
}

const NAME = /^(\d{1,10})-(\d{1,20}|x)-([0-9a-f]{16})-/

/** The start of a name; who appends something unique to it has a name for one claim. */
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
