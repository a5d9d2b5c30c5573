// Asks for the adapter in a process of its own. Dawn, the Vulkan loader and drivers write to stderr by themselves, and no option
// stops them; there it is a pipe. A driver that crashes or hangs ends that process alone. What the answer depends on is in
// `driverKey`, so that callers can keep it.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdir, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { homedir, release } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type ProbedAdapter, probeAdapters } from './gpuDevice.js'
import { vulkanLoader } from './nodeGpu.js'

export interface AdapterProbe extends ProbedAdapter {
  readonly said: string // what drivers wrote to stderr meanwhile
  readonly isFinal: boolean // the next probe would find the same
}

const TIMEOUT_MS = 30_000 // a driver that compiles its caches for the first time takes seconds
const MAX_SAID = 2000 // characters

/** Metal says nothing; Deno brings a WebGPU of its own, and starts no script by its path alone. */
function isQuiet(): boolean {
  return process.platform === 'darwin' || process.versions.deno !== undefined
}

export async function probeAdaptersApart(signal?: AbortSignal): Promise<AdapterProbe> {
  if (isQuiet() || (await vulkanLoader()) === null) return { ...(await probeAdapters()), said: '', isFinal: true }
  signal?.throwIfAborted()
  const entry = fileURLToPath(new URL('./adapterProbeEntry.js', import.meta.url))
  const child = spawn(process.execPath, [entry], {
    stdio: ['ignore', 'pipe', 'pipe'],
    windowsHide: true,
    detached: process.platform !== 'win32', // out of reach of the terminal's Ctrl-C: `signal` ends it
    timeout: TIMEOUT_MS,
    killSignal: 'SIGKILL',
    signal,
  })
  let answer = ''
  let said = ''
  child.stdout.setEncoding('utf8').on('data', text => (answer += text))
  child.stderr.setEncoding('utf8').on('data', text => (said = (said + text).slice(0, MAX_SAID)))
  const end = await new Promise<string>((resolve, reject) => {
    child.once('error', error => (signal?.aborted ? reject(signal.reason) : resolve(error.message)))
    child.once('close', (code, by) => resolve(by ?? `exit code ${code}`))
  })
  said = said.trim()
  try {
    return { ...(JSON.parse(answer.slice(answer.lastIndexOf('\n{') + 1)) as ProbedAdapter), said, isFinal: true }
  } catch {
    const isFinal = end === 'SIGKILL'
    const how = isFinal ? `took longer than ${TIMEOUT_MS / 1000} s` : `ended that process (${end})`
    return { usable: false, reason: `asking for an adapter ${how}`, adapter: null, said, isFinal }
  }
}

/** What says which drivers there are and where they are found. */
const VARIABLES = [
  ...['VK_ICD_FILENAMES', 'VK_DRIVER_FILES', 'VK_ADD_DRIVER_FILES', 'VK_LOADER_DRIVERS_DISABLE'],
  ...['VK_LOADER_DRIVERS_SELECT', 'LD_LIBRARY_PATH', 'XDG_DATA_DIRS', 'XDG_DATA_HOME', 'DAWNNODE_BACKEND'],
]

/** Changes with the drivers of this machine, with Node and with Dawn: the same key means the same adapter. */
export async function driverKey(): Promise<string> {
  const system = [process.platform, process.arch, release(), process.version]
  const variables = VARIABLES.map(name => process.env[name] ?? null)
  const loader = await vulkanLoader()
  const files = [dawnPackage(), loader, ...(await driverFiles())]
  const facts = [system, variables, files, await Promise.all(files.map(lastChange)), await gpuDevices()]
  return createHash('sha256').update(JSON.stringify(facts)).digest('hex')
}

function dawnPackage(): string | null {
  try {
    return createRequire(import.meta.url).resolve('webgpu/package.json')
  } catch {
    return null
  }
}

/** The manifests of Vulkan's drivers, in the folders where its loader looks for them; on Windows where drivers are installed. */
async function driverFiles(): Promise<string[]> {
  const { XDG_DATA_DIRS, XDG_DATA_HOME, SystemRoot = 'C:\\Windows' } = process.env
  if (process.platform === 'win32') return [join(SystemRoot, 'System32', 'DriverStore', 'FileRepository')]
  const shared = XDG_DATA_DIRS || '/usr/local/share:/usr/share:/run/opengl-driver/share'
  const bases = ['/etc', '/usr/local/etc', XDG_DATA_HOME || join(homedir(), '.local/share'), ...shared.split(':')]
  const folders = bases.map(base => join(base, 'vulkan/icd.d'))
  const names = await Promise.all(folders.map(folder => readdir(folder).catch(() => [])))
  return names.flatMap((list, i) => list.sort().map(name => join(folders[i], name)))
}

async function lastChange(file: string | null): Promise<string | null> {
  const info = file === null ? null : await stat(file).catch(() => null)
  return info && `${info.mtimeMs} ${info.size}`
}

/** GPUs as Linux shows them, whatever their drivers: a card may be plugged in, or lent to a container. */
export async function gpuDevices(): Promise<string[]> {
  if (process.platform !== 'linux') return []
  const [all, cards] = await Promise.all(['/dev', '/dev/dri'].map(folder => readdir(folder).catch(() => [])))
  const own = all.filter(name => /^(nvidia\d+|dxg)$/.test(name)).map(name => `/dev/${name}`)
  return [...own, ...cards.filter(name => name.startsWith('renderD')).map(name => `/dev/dri/${name}`)].sort()
}

/**
 * For a process that is going to open a GPU that was found: leaves out what complains where a GPU is there. `DRI_PRIME` and
 * `MESA_VK_DEVICE_SELECT` need the layer that complains without XDG_RUNTIME_DIR.
 */
export function quietDrivers(): void {
  const { env } = process
  if (process.platform !== 'linux') return
  env.VK_LOADER_DRIVERS_DISABLE ??= 'lvp_icd*' // Mesa's software adapter
  if (env.DRI_PRIME === undefined && env.MESA_VK_DEVICE_SELECT === undefined) env.NODEVICE_SELECT ??= '1'
}
