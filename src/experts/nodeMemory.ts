// How much memory a process may still take: what the machine has free, or less where a control group (a container, a
// service, a batch job) sets a limit. Page cache that can be dropped counts as free.
import { readFileSync } from 'node:fs'
import { freemem, totalmem } from 'node:os'
import { join } from 'node:path'

export interface MemoryFacts {
  readonly bytes: number // free to take
  readonly limit: number // total: of the machine, or of the tightest group
  readonly limitedBy: 'machine' | 'cgroup'
}

interface GroupMemory {
  readonly limit: number
  readonly used: number // without page cache that can be dropped
}

export function availableMemory(root = '/'): MemoryFacts {
  const machine: MemoryFacts = { bytes: freemem(), limit: totalmem(), limitedBy: 'machine' }
  let facts = machine
  for (const group of process.platform === 'linux' ? memoryGroups(root) : []) {
    const bytes = Math.max(0, group.limit - group.used)
    if (group.limit < machine.limit && bytes < facts.bytes) facts = { bytes, limit: group.limit, limitedBy: 'cgroup' }
  }
  return facts
}

/** The process's own group and all above it, in both versions of the interface. */
export function memoryGroups(root: string): GroupMemory[] {
  const groups: GroupMemory[] = []
  for (const line of (readText(join(root, 'proc/self/cgroup')) ?? '').split('\n')) {
    const [id, controllers, path] = splitLine(line)
    if (path === undefined) continue
    const v2 = id === '0' && controllers === ''
    if (!v2 && !controllers.split(',').includes('memory')) continue
    const base = join(root, v2 ? 'sys/fs/cgroup' : 'sys/fs/cgroup/memory')
    // In a container the path may name a group outside: its own files are then at the root of the mount.
    for (let at = path; ; at = at.slice(0, at.lastIndexOf('/'))) {
      const group = v2 ? groupV2(join(base, at)) : groupV1(join(base, at))
      if (group) groups.push(group)
      if (at === '' || at === '/') break
    }
  }
  return groups
}

function splitLine(line: string): [string, string, string | undefined] {
  const [id, controllers, ...path] = line.split(':')
  return [id, controllers ?? '', path.length > 0 ? path.join(':') : undefined]
}

function groupV2(folder: string): GroupMemory | null {
  const limit = readNumber(join(folder, 'memory.max'))
  const usage = readNumber(join(folder, 'memory.current'))
  if (limit === null || usage === null) return null
  return { limit, used: usage - droppable(join(folder, 'memory.stat'), 'inactive_file', 'active_file') }
}

function groupV1(folder: string): GroupMemory | null {
  const limit = readNumber(join(folder, 'memory.limit_in_bytes'))
  const usage = readNumber(join(folder, 'memory.usage_in_bytes'))
  if (limit === null || usage === null) return null
  return { limit, used: usage - droppable(join(folder, 'memory.stat'), 'total_inactive_file', 'total_active_file') }
}

function droppable(file: string, ...fields: string[]): number {
  const text = readText(file) ?? ''
  let bytes = 0
  for (const field of fields) bytes += Number(new RegExp(`^${field} (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
  return bytes
}

// 'max' (no limit) is not a number and gives null.
function readNumber(file: string): number | null {
  const text = readText(file)?.trim()
  return text && /^\d+$/.test(text) ? Number(text) : null
}

function readText(file: string): string | null {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return null
  }
}
