// A disk of a few megabytes for one program: a file system in memory, mounted where only that program sees it, and gone
// when it ends. Linux alone has that, for root or where user namespaces are allowed; who cannot have it is told so.
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryFolder } from '../models/packedFiles.js'

const WAYS: readonly (readonly string[])[] = [
  ['unshare', '-m'],
  ['unshare', '-Urm'],
]

/** The command that runs another one in a namespace of mounts, or null. */
const unshare =
  WAYS.find(([command, ...flags]) => {
    const script = 'mount -t tmpfs -o size=64k tmpfs "$0"'
    return spawnSync(command, [...flags, 'sh', '-c', script, import.meta.dirname], { stdio: 'ignore' }).status === 0
  }) ?? null

export const smallDiskMissing = unshare === null ? 'a small disk needs Linux and root or user namespaces' : null

/** Runs a module whose `disk` is the folder of a disk of so many bytes. Returns what it gave to `tell`. */
export async function onSmallDisk(bytes: number, program: string): Promise<unknown> {
  const disk = join(temporaryFolder(), 'disk')
  mkdirSync(disk)
  const [command, ...flags] = unshare as readonly string[]
  const source = `
    import { closeSync, openSync, writeSync } from 'node:fs'
    const disk = ${JSON.stringify(disk)}
    const tell = value => process.stdout.write(JSON.stringify(value))
    /** Leaves no byte free. */
    const fill = () => {
      const file = openSync(disk + '/filler-' + Math.random(), 'w')
      for (const size of [65536, 512, 1]) {
        try {
          for (;;) writeSync(file, Buffer.alloc(size))
        } catch {}
      }
      closeSync(file)
    }
    ${program}`
  const script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && exec "$3" --input-type=module -e "$4"'
  const args = [...flags, 'sh', '-c', script, 'sh', String(bytes), disk, process.execPath, source]
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let told = ''
  child.stdout.setEncoding('utf8').on('data', text => (told += text))
  await new Promise(resolve => child.on('close', resolve))
  return JSON.parse(told)
}
