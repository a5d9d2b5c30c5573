// How much memory a process may still take: what the machine has free, or less where a control group (a container, a
// service, a batch job) sets a limit. Everything is read below a root, so that tests can have a system of their own.
import { readFileSync } from 'node:fs'
import { freemem, totalmem } from 'node:os'
import { join } from 'node:path'
import type { MemoryFacts } from './memoryFacts.js'

interface GroupMemory {
  readonly limit: number
  readonly used: number // without page cache that can be dropped
}

export function availableMemory(root = '/'): MemoryFacts {
  const machine = machineMemory(root)
  let facts = machine
  for (const group of process.platform === 'linux' ? memoryGroups(root) : []) {
    const bytes = Math.max(0, group.limit - group.used)
    if (group.limit < machine.limit && bytes < facts.bytes) {
      facts = { bytes, ceiling: bytes, limit: group.limit, limitedBy: 'cgroup' }
    }
  }
  return facts
}

/** Other systems than Linux take memory from caches and compress it in ways that they do not count as free. */
function machineMemory(root: string): MemoryFacts {
  const text = process.platform === 'linux' ? readText(join(root, 'proc/meminfo')) : null
  const field = (name: string) => {
    const kibibytes = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text ?? '')?.[1]
    return kibibytes === undefined ? null : Number(kibibytes) * 1024
  }
  const available = field('MemAvailable')
  if (available === null) {
    return { bytes: freemem(), ceiling: Number.POSITIVE_INFINITY, limit: totalmem(), limitedBy: 'machine' }
  }
  const ceiling = available + (field('SwapFree') ?? 0)
  return { bytes: available, ceiling, limit: field('MemTotal') ?? totalmem(), limitedBy: 'machine' }
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
  return {
    limit,
    used: usage - droppable(join(folder, 'memory.stat'), '', 'file_mapped', 'file_dirty', 'file_writeback'),
  }
}

function groupV1(folder: string): GroupMemory | null {
  const limit = readNumber(join(folder, 'memory.limit_in_bytes'))
  const usage = readNumber(join(folder, 'memory.usage_in_bytes'))
  if (limit === null || usage === null) return null
  const kept = ['total_mapped_file', 'total_dirty', 'total_writeback']
  return { limit, used: usage - droppable(join(folder, 'memory.stat'), 'total_', ...kept) }
}

/** Page cache without what programs run from (dropped, it is read again at once) and without what is not on the disk yet. */
function droppable(file: string, prefix: string, ...kept: string[]): number {
  const text = readText(file) ?? ''
  const field = (name: string) => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
  const cached = field(`${prefix}inactive_file`) + field(`${prefix}active_file`)
  return Math.max(0, cached - kept.reduce((sum, name) => sum + field(name), 0))
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
