// Runs a command in a control group of its own with a limit on its memory, and says how it ended and what it took at most:
//
//   node src/lab/bench/capped.mjs 700MB moeflux bench --synthetic a3b:4
//
// `moeflux` is the built command. Needs Linux and the right to make a group below the present one: root, or a group that
// was delegated. Both versions of the interface are known.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..')
const FILES = {
  v1: { limit: 'memory.limit_in_bytes', peak: 'memory.max_usage_in_bytes', events: 'memory.oom_control' },
  v2: { limit: 'memory.max', peak: 'memory.peak', events: 'memory.events' },
}
const UNITS = { KB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 }

/** Folder and interface of this process's own group, or null. */
function ownGroup() {
  if (!existsSync('/proc/self/cgroup')) return null
  for (const line of readFileSync('/proc/self/cgroup', 'utf8').split('\n')) {
    const [id, controllers, ...path] = line.split(':')
    const isV2 = id === '0' && controllers === ''
    if (!isV2 && !controllers?.split(',').includes('memory')) continue
    const files = isV2 ? FILES.v2 : FILES.v1
    const base = isV2 ? '/sys/fs/cgroup' : '/sys/fs/cgroup/memory'
    for (const folder of [join(base, path.join(':')), base]) {
      if (existsSync(join(folder, 'cgroup.procs')) && (!isV2 || hasMemory(folder))) return { folder, files }
    }
  }
  return null
}

/** Whether groups below have a limit on memory. */
function hasMemory(folder) {
  return readFileSync(join(folder, 'cgroup.subtree_control'), 'utf8').split(/\s+/).includes('memory')
}

/** Why no group can be made here; null where it can. */
export function whyNot() {
  if (process.platform !== 'linux') return 'control groups are a thing of Linux'
  const own = ownGroup()
  if (own === null) return 'this system has no control groups for memory that could be divided'
  try {
    rmdirSync(makeGroup(own))
    return null
  } catch (error) {
    return `no control group can be made below ${own.folder}: ${error.code}`
  }
}

let groups = 0
function makeGroup({ folder }) {
  const group = join(folder, `moeflux-capped-${process.pid}-${groups++}`)
  mkdirSync(group)
  return group
}

/** Runs a command with at most `bytes` of memory, page cache included. */
export async function runCapped(bytes, command, args, { env = {}, seconds = 600 } = {}) {
  const own = ownGroup()
  const group = makeGroup(own)
  try {
    writeFileSync(join(group, own.files.limit), String(bytes))
    const script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    const child = spawn('sh', ['-c', script, group, command, ...args], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', text => (stdout += text))
    child.stderr.setEncoding('utf8').on('data', text => (stderr += text))
    const timer = setTimeout(() => child.kill('SIGKILL'), seconds * 1000)
    const [code, signal] = await new Promise(resolve => child.on('close', (...end) => resolve(end)))
    clearTimeout(timer)
    const peakFile = join(group, own.files.peak)
    const peak = existsSync(peakFile) ? Number(readFileSync(peakFile, 'utf8')) : null
    const kills = Number(/oom_kill (\d+)/.exec(readFileSync(join(group, own.files.events), 'utf8'))?.[1] ?? 0)
    return { code, signal, killed: kills > 0, peak, stdout, stderr }
  } finally {
    for (let attempt = 0; attempt < 50; attempt++) {
      try {
        rmdirSync(group)
        break
      } catch {
        await new Promise(resolve => setTimeout(resolve, 100)) // threads of a killed process take a moment to end
      }
    }
  }
}

export function parseBytes(text) {
  const [, number, unit] = /^(\d+(?:\.\d+)?)([KMG]i?B)$/.exec(text) ?? []
  if (number === undefined) throw new Error(`'${text}' is no size, want one like 700MB or 1GiB`)
  return Number(number) * UNITS[unit]
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [size, command, ...args] = process.argv.slice(2)
  const reason = whyNot()
  if (reason !== null) {
    console.error(reason)
    process.exit(2)
  }
  const main = command === 'moeflux' ? [process.execPath, join(root, 'dist/apps/cli/main.js')] : [command]
  const { code, signal, killed, peak, stdout, stderr } = await runCapped(parseBytes(size), main[0], [
    ...main.slice(1),
    ...args,
  ])
  process.stdout.write(stdout)
  process.stderr.write(stderr)
  const end = killed ? 'killed for its memory' : signal === null ? `ended with ${code}` : `ended by ${signal}`
  console.error(`${size}: ${end}, peak ${peak === null ? 'unknown' : `${(peak / 1e6).toFixed(0)} MB`}`)
  process.exitCode = killed ? 137 : (code ?? 1)
}
