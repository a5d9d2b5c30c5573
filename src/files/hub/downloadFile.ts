// Downloads one file of a hub to the disk: several ranges at once, each taken up where it broke off, within a run and
// across runs. The file gets its name only when its size and checksum are right.
import { createHash } from 'node:crypto'
import { type FileHandle, open, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { writing } from '../diskFull.js'
import { type HubClient, type HubFile, isFinal, networkReason, offlineReason } from './hubClient.js'
import { StallGuard } from './hubLimits.js'

export interface DownloadOptions {
  readonly rangeBytes?: number // default 32 MiB
  readonly parallel?: number // default 4
  readonly retries?: number // of one range, with next to nothing in between. Default 8
  readonly retryMs?: number // before the first retry; doubles
  /** Bytes that arrived; negative where a file is begun anew. */
  readonly onBytes?: (bytes: number) => void
  /** Bytes that an earlier run had brought. */
  readonly onReused?: (bytes: number) => void
  readonly onNotice?: (line: string) => void
  readonly signal?: AbortSignal
}

interface Ranges {
  readonly etag: string | null
  readonly rangeBytes: number
  readonly done: readonly number[] // bytes of each range that are on the disk
}

/** How the name of a file ends that is not whole yet. */
export const PART = '.part'

const ATTEMPTS = 3 // at a file whose content changed or whose checksum was wrong

/** Makes `path` hold the file. One that is there already is taken as it is: it was checked when it got its name. */
export async function downloadFile(
  client: HubClient,
  commit: string,
  file: HubFile,
  path: string,
  options: DownloadOptions = {},
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const download = new Download(client, client.fileUrl(commit, file.path), file, path, options)
    try {
      await download.run()
      return
    } catch (error) {
      if (!(error instanceof ContentChanged)) throw error
      await download.startOver()
      if (attempt === ATTEMPTS) throw client.error(`${file.path}: ${error.message}`)
      options.onNotice?.(`${file.path}: ${error.message}; downloading it again`)
    }
  }
}

class ContentChanged extends Error {}

class Download {
  private readonly part: string
  private readonly notes: string
  private readonly rangeBytes: number
  private etag: string | null = null
  private done: number[] = []
  private handle: FileHandle | null = null
  private saving: Promise<void> = Promise.resolve()

  constructor(
    private readonly client: HubClient,
    private readonly url: string,
    private readonly file: HubFile,
    private readonly path: string,
    private readonly options: DownloadOptions,
  ) {
    this.part = path + PART
    this.notes = `${path}.ranges`
    this.rangeBytes = options.rangeBytes ?? 32 * 2 ** 20
  }

  async run(): Promise<void> {
    await this.takeUp()
    const waiting = this.done.flatMap((bytes, index) => (bytes < this.rangeSize(index) ? [index] : []))
    const failed = new AbortController()
    const worker = async () => {
      for (let index = waiting.shift(); index !== undefined; index = waiting.shift())
        await this.fetchRange(index, failed.signal)
    }
    this.handle = await open(this.part, 'r+')
    try {
      const workers = Array.from({ length: this.options.parallel ?? 4 }, worker)
      await Promise.all(workers).catch(async error => {
        failed.abort(error)
        await Promise.allSettled(workers)
        throw error
      })
      await this.handle.sync()
    } finally {
      await this.saving
      await this.handle.close()
    }
    await this.verify()
    await rename(this.part, this.path)
    await rm(this.notes, { force: true })
  }

  async startOver(): Promise<void> {
    this.options.onBytes?.(-this.done.reduce((sum, bytes) => sum + bytes, 0))
    await rm(this.part, { force: true })
    await rm(this.notes, { force: true })
  }

  private rangeSize(index: number): number {
    return Math.min(this.rangeBytes, this.file.size - index * this.rangeBytes)
  }

  /** Goes on with what an earlier run left, where its notes still fit. */
  private async takeUp(): Promise<void> {
    const count = Math.ceil(this.file.size / this.rangeBytes)
    const earlier = await readNotes(this.notes)
    const size = await open(this.part, 'r')
      .then(async handle => (await handle.stat().finally(() => handle.close())).size)
      .catch(() => -1)
    if (earlier?.rangeBytes === this.rangeBytes && earlier.done.length === count && size === this.file.size) {
      this.etag = earlier.etag
      this.done = earlier.done.map((bytes, index) => Math.min(Math.max(0, bytes), this.rangeSize(index)))
      this.options.onReused?.(this.done.reduce((sum, bytes) => sum + bytes, 0))
      return
    }
    this.done = Array<number>(count).fill(0)
    await writing(this.path, async () => {
      const handle = await open(this.part, 'w')
      await handle.truncate(this.file.size).finally(() => handle.close())
    })
    await this.save()
  }

  private async fetchRange(index: number, failed: AbortSignal): Promise<void> {
    const { retries = 8, retryMs = 500, signal } = this.options
    const { leastBytes } = this.client.limits
    const stop = signal === undefined ? failed : AbortSignal.any([failed, signal])
    let fruitless = 0
    while (this.done[index] < this.rangeSize(index)) {
      stop.throwIfAborted()
      const before = this.done[index]
      try {
        await this.fetchSome(index, failed)
      } catch (error) {
        stop.throwIfAborted()
        if (error instanceof ContentChanged || isFinal(error)) throw error
        // A hub that sends a few bytes and breaks off would else be asked for ever.
        fruitless = this.done[index] >= before + leastBytes ? 0 : fruitless + 1
        if (fruitless > retries) {
          const detail = `${this.url}: gave up after ${retries} retries: ${offlineReason(error, this.url) ?? networkReason(error)}`
          throw this.client.error(detail, { cause: error })
        }
        await sleep(Math.min(retryMs * 2 ** fruitless, 30_000), undefined, { signal: stop })
      }
    }
  }

  /** One request for what is missing of a range. What arrives before it breaks off is kept. */
  private async fetchSome(index: number, failed: AbortSignal): Promise<void> {
    const start = index * this.rangeBytes
    const from = start + this.done[index]
    const to = start + this.rangeSize(index) - 1
    const guard = new StallGuard(this.client.limits)
    const { signal } = this.options
    const signals = [guard.signal, failed, ...(signal === undefined ? [] : [signal])]
    try {
      const headers = { range: `bytes=${from}-${to}`, ...(this.etag !== null && { 'if-range': this.etag }) }
      const response = await this.client.ask(this.url, headers, AbortSignal.any(signals))
      const body = response.body
      if (body === null) throw new Error('an answer without a body')
      this.checkAnswer(response, from)
      for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
        guard.got(chunk.length)
        const place = start + this.done[index]
        const useful = chunk.subarray(0, to + 1 - place)
        await writing(this.path, () => writeAll(this.handle as FileHandle, useful, place))
        this.done[index] += useful.length
        this.options.onBytes?.(useful.length)
        if (useful.length < chunk.length || this.done[index] === this.rangeSize(index)) break
      }
    } finally {
      guard.end()
      await this.save()
    }
  }

  private checkAnswer(response: Response, from: number): void {
    const etag = response.headers.get('etag')
    const { status } = response
    if (this.etag !== null && etag !== this.etag) throw new ContentChanged('it changed on the hub')
    if (status === 206) {
      const [, first, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.headers.get('content-range') ?? '') ?? []
      if (Number(first) !== from)
        throw new Error(`asked for bytes from ${from}, got '${response.headers.get('content-range')}'`)
      if (total !== '*' && Number(total) !== this.file.size) {
        throw new ContentChanged(`it has ${total} bytes, the hub's list says ${this.file.size}`)
      }
    } else if (from !== 0) {
      throw this.client.error(`${this.url}: does not send parts of files`, { status })
    }
    if (etag !== null && !etag.startsWith('W/')) this.etag = etag
  }

  private async verify(): Promise<void> {
    const { checksum, size } = this.file
    if (checksum === null) return
    const hash = createHash(checksum.kind === 'git' ? 'sha1' : 'sha256')
    if (checksum.kind === 'git') hash.update(`blob ${size}\0`)
    const handle = await open(this.part, 'r')
    for await (const chunk of handle.createReadStream({ highWaterMark: 2 ** 20, signal: this.options.signal })) {
      hash.update(chunk as Uint8Array)
    }
    const got = hash.digest('hex')
    if (got !== checksum.hex) throw new ContentChanged(`its checksum is ${got}, want ${checksum.hex}`)
  }

  /** Notes are written one after another; what a crash loses of them is downloaded again. */
  private save(): Promise<void> {
    const saved = this.saving.then(() => {
      const { etag, rangeBytes, done } = this
      const text = JSON.stringify({ etag, rangeBytes, done } satisfies Ranges)
      return writing(this.notes, () => writeFile(this.notes, text))
    })
    this.saving = saved.catch(() => {}) // seen by who waits for its own notes
    return saved
  }
}

/** Writes all bytes, also where the system takes a part of them at a time. */
/** What is used of a FileHandle, in types that need no Node. */
interface Writable {
  write(bytes: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesWritten: number }>
}

export async function writeAll(handle: Writable, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    done += (await handle.write(bytes, done, bytes.length - done, position + done)).bytesWritten
  }
}

async function readNotes(path: string): Promise<Ranges | null> {
  try {
    const { etag, rangeBytes, done } = JSON.parse(await readFile(path, 'utf8')) as Ranges
    const isWhole = Array.isArray(done) && done.every(bytes => Number.isSafeInteger(bytes))
    return isWhole && typeof rangeBytes === 'number' ? { etag: etag ?? null, rangeBytes, done } : null
  } catch {
    return null
  }
}
