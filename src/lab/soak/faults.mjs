// What goes wrong on the disk while the server serves: expert files are cut short or overwritten and put right again, and
// the folder of the snapshot store is deleted, made unwritable, or filled with garbage. Keeps the times at which model
// files were broken: only then may a request fail for it.
import { execFile } from 'node:child_process'
import { chmod, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { seededRandom } from '../harness/random.mjs'

const run = promisify(execFile)
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

/** What the clocks of two awaits may lie apart. */
const SLACK_MS = 250

export class Faults {
  #random
  #windows = [] // [from, to] in performance.now()
  #brokenSince = null
  #counts = {}
  #isStopped = false
  #running

  constructor({ seed, modelFolder, storeFolder, without }) {
    this.#random = seededRandom(seed, 'faults')
    this.modelFolder = modelFolder
    this.storeFolder = storeFolder
    this.kinds = FAULTS.filter(([, name]) => !without.includes(name))
  }

  get counts() {
    return this.#counts
  }

  /** One fault after the other until `stop`. */
  start() {
    this.#running = this.#loop()
  }

  /** Resolves when everything is as it was. */
  async stop() {
    this.#isStopped = true
    await this.#running
  }

  /** Whether a model file was broken at some time between the two. */
  isFileBroken(from, to) {
    if (this.#brokenSince !== null && this.#brokenSince <= to) return true
    return this.#windows.some(([start, end]) => start <= to && end + SLACK_MS >= from)
  }

  async #loop() {
    if (this.kinds.length === 0) return
    while (!this.#isStopped) {
      await this.#wait(this.#random.between(2000, 8000))
      if (this.#isStopped) return
      const name = this.#random.weighted(this.kinds)
      await this[FAULT_METHODS[name]]()
      this.#counts[name] = (this.#counts[name] ?? 0) + 1
    }
  }

  /** Cut short as an interrupted copy would be; put right from the cut on, so that no byte is ever another one. */
  async cutFile() {
    const file = await this.#expertFile()
    const bytes = await readFile(file)
    const length = this.#random.below(bytes.length)
    await this.#whileBroken(file, bytes, async handle => {
      await handle.truncate(length)
      await this.#wait(this.#random.between(100, 2500))
      await handle.write(bytes, length, bytes.length - length, length)
    })
  }

  /** Other bytes of the same length: zeros, ones (which are NaN as scales), or noise. */
  async overwriteFile() {
    const file = await this.#expertFile()
    const bytes = await readFile(file)
    const start = this.#random.below(bytes.length)
    const length = Math.min(bytes.length - start, this.#random.between(1, 400_000))
    const noise = this.#random.pick([
      () => Buffer.alloc(length),
      () => Buffer.alloc(length, 0xff),
      () => this.#noise(length),
    ])()
    await this.#whileBroken(file, bytes, async handle => {
      await handle.write(noise, 0, length, start)
      await this.#wait(this.#random.between(100, 2500))
    })
  }

  async deleteStore() {
    await remove(this.storeFolder)
  }

  /** For the owner of the machine no folder is read-only: a file in its place refuses everybody. */
  async lockStore() {
    await mkdir(this.storeFolder, { recursive: true })
    if (process.getuid?.() !== 0) {
      await chmod(this.storeFolder, 0o555)
      await this.#wait(this.#random.between(500, 4000))
      await chmod(this.storeFolder, 0o755)
      return
    }
    const aside = `${this.storeFolder}-aside`
    await rename(this.storeFolder, aside)
    await writeFile(this.storeFolder, 'not a folder').catch(() => {})
    await this.#wait(this.#random.between(500, 4000))
    await remove(this.storeFolder)
    // The server may have made the folder anew meanwhile, which is as good.
    await rename(aside, this.storeFolder).catch(() => remove(aside))
  }

  /** Entries cut, flipped, exchanged for each other, for noise, for folders and for pipes that nobody writes to. */
  async spoilStore() {
    await mkdir(this.storeFolder, { recursive: true })
    const entries = await readdir(this.storeFolder, { withFileTypes: true })
    const names = entries.filter(entry => entry.isFile() && entry.name.endsWith('.state')).map(entry => entry.name)
    for (const name of names) await this.#spoil(name, names).catch(ignoreMissing)
    for (const name of ['.hidden.part', 'notes.txt', `${'0'.repeat(32)}-5-${'0'.repeat(16)}.state`]) {
      const path = join(this.storeFolder, name)
      await remove(path) // it may be a pipe by now
      await writeFile(path, this.#noise(100))
    }
    await this.#wait(this.#random.between(500, 4000))
    if (this.#random.chance(0.5)) await this.deleteStore()
  }

  async #spoil(name, names) {
    const path = join(this.storeFolder, name)
    const bytes = await readFile(path)
    const way = this.#random.below(6)
    if (way === 0) await writeFile(path, bytes.subarray(0, this.#random.below(bytes.length + 1)))
    else if (way === 1) await writeFile(path, flipped(bytes, this.#random))
    else if (way === 2) await writeFile(path, this.#noise(1000))
    else if (way === 3) await rename(path, join(this.storeFolder, this.#random.pick(names)))
    else {
      await rm(path)
      if (way === 4) await mkdir(path)
      else await run('mkfifo', [path])
    }
  }

  async #expertFile() {
    const folder = join(this.modelFolder, 'packed_experts')
    return join(folder, this.#random.pick((await readdir(folder)).sort()))
  }

  async #whileBroken(file, bytes, work) {
    const handle = await open(file, 'r+')
    this.#brokenSince = performance.now()
    try {
      await work(handle)
    } finally {
      await handle.write(bytes, 0, bytes.length, 0)
      await handle.close()
      this.#windows.push([this.#brokenSince, performance.now()])
      this.#brokenSince = null
    }
    const { size } = await stat(file)
    if (size !== bytes.length) throw new Error(`${file} was not restored`)
  }

  #noise(length) {
    return Buffer.from(this.#random.bytes(length))
  }

  async #wait(ms) {
    const until = performance.now() + ms
    while (!this.#isStopped && performance.now() < until) await pause(Math.min(100, ms))
  }
}

/** The server may write into a folder while it goes. */
function remove(folder) {
  return rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 10 })
}

/** The server removes entries too. */
function ignoreMissing(error) {
  if (error.code !== 'ENOENT' && error.code !== 'EISDIR') throw error
}

function flipped(bytes, random) {
  const copy = Buffer.from(bytes)
  if (copy.length > 0) copy[random.below(copy.length)] ^= 1 << random.below(8)
  return copy
}

/** `[weight, name]` */
const FAULTS = [
  [4, 'cut files'],
  [4, 'overwritten files'],
  [1, 'deleted store'],
  [1, 'locked store'],
  [2, 'spoilt store'],
]
const FAULT_METHODS = {
  'cut files': 'cutFile',
  'overwritten files': 'overwriteFile',
  'deleted store': 'deleteStore',
  'locked store': 'lockStore',
  'spoilt store': 'spoilStore',
}
/** Of the model's own files. */
export const FILE_FAULTS = ['cut files', 'overwritten files']
export const FAULT_NAMES = FAULTS.map(([, name]) => name)
