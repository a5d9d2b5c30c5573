// A model on a hub as a folder that the converter reads. Small files are downloaded at once. A shard is downloaded when
// its first tensor is read, and given up again when the converter is past it: then only its tensors that are not
// experts, a small part, stay on the disk for the end of the conversion. So the disk holds the packed model and a few
// shards, never the whole source.
import { createHash } from 'node:crypto'
import { mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { ReadError } from '../../base/errors.js'
import { readSafetensorsHeader } from '../convert/safetensors.js'
import { writing } from '../diskFull.js'
import { openFileSource } from '../fileSource.js'
import { checkName } from '../nodeFolder.js'
import type { ByteSource, Folder } from '../source.js'
import { type DownloadOptions, downloadFile, PART, writeAll } from './downloadFile.js'
import type { HubClient, HubFile } from './hubClient.js'

const MAX_TEXT_BYTES = 512 * 2 ** 20
const MAX_HEADER_BYTES = 100_000_000

export class HubFolder implements Folder {
  private readonly shards = new Map<string, HubShard>()
  private readonly whole = new Set<HubShard>()
  private readonly over = new AbortController()
  private readonly options: DownloadOptions

  constructor(
    private readonly client: HubClient,
    private readonly commit: string,
    private readonly files: ReadonlyMap<string, HubFile>,
    private readonly cache: string, // folder on the disk
    options: DownloadOptions = {},
  ) {
    const signals = options.signal === undefined ? [] : [options.signal]
    this.options = { ...options, signal: AbortSignal.any([...signals, this.over.signal]) }
  }

  get location(): string {
    return this.client.id
  }

  async readText(name: string): Promise<string | null> {
    const file = this.files.get(name)
    if (file === undefined) return null
    if (file.size > MAX_TEXT_BYTES) {
      throw this.client.error(`${name}: ${file.size} bytes, want at most ${MAX_TEXT_BYTES}`)
    }
    return await readFile(await this.download(file), 'utf8')
  }

  async open(name: string): Promise<ByteSource> {
    const file = this.files.get(name)
    if (file === undefined) throw new ReadError(`${this.client.id}/${name}`, 0, 0, 'there is no such file on the hub')
    const shard = new HubShard(file, this)
    await shard.readHead()
    if (shard.wasRead) this.options.onReused?.(file.size)
    this.shards.set(name, shard)
    return shard
  }

  path(name: string): string {
    checkName(name, this.cache)
    return join(this.cache, name)
  }

  /** Some bytes at the start of a file. */
  fetchStart(file: HubFile, bytes: number): Promise<Uint8Array> {
    const url = this.client.fileUrl(this.commit, file.path)
    return this.client.fetchStart(url, bytes, file.size, this.options.signal)
  }

  async download(file: HubFile): Promise<string> {
    const path = this.path(file.path)
    if ((await stat(path).catch(() => null))?.size === file.size) {
      this.options.onReused?.(file.size)
      return path
    }
    await mkdir(dirname(path), { recursive: true })
    await downloadFile(this.client, this.commit, file, path, this.options)
    return path
  }

  /** Who reads the shards is done with them: nothing more is downloaded. */
  end(): void {
    this.over.abort()
  }

  /** A shard is being read as a whole: gives up earlier ones, as the converter goes through them in order. */
  async use(shard: HubShard): Promise<void> {
    if (this.whole.has(shard)) return
    this.whole.add(shard)
    const all = [...this.shards.values()]
    for (const earlier of all) {
      if (this.whole.size <= this.wholeAtOnce()) break
      if (earlier !== shard && this.whole.delete(earlier)) await earlier.giveUp()
    }
    all[all.indexOf(shard) + 1]?.sendFor()
  }

  /** The experts of a layer are read together: all shards that hold some of them must be there. */
  private wholeAtOnce(): number {
    const spans = new Map<string, number>()
    for (const { expertLayers } of this.shards.values()) {
      for (const layer of expertLayers) spans.set(layer, (spans.get(layer) ?? 0) + 1)
    }
    return Math.max(1, ...spans.values())
  }
}

/** Where some bytes of a shard lie in the file of what is kept of it. */
type KeptRange = readonly [offset: number, size: number, place: number]

class HubShard implements ByteSource {
  readonly name: string
  readonly size: number
  readonly expertLayers = new Set<string>()
  private head = new Uint8Array(0)
  private local: Promise<ByteSource> | null = null
  private kept: { readonly source: ByteSource; readonly ranges: readonly KeptRange[] } | null = null

  constructor(
    private readonly file: HubFile,
    private readonly folder: HubFolder,
  ) {
    this.name = file.path
    this.size = file.size
  }

  /** The header says where the tensors are; it is asked for alone. What an earlier run kept is taken up. */
  async readHead(): Promise<void> {
    this.kept = await this.openKept()
    const headPath = this.folder.path(`${this.name}.head`)
    const saved = await readFile(headPath).catch(() => null)
    this.head = saved === null ? await this.fetchHead() : new Uint8Array(saved)
    if (saved === null) await writeWhole(headPath, this.head)
    const { tensors } = await readSafetensorsHeader(this)
    for (const name of tensors.keys()) if (isExpert(name)) this.expertLayers.add(name.replace(/\.mlp\..*/, ''))
  }

  /** An earlier run was past it. */
  get wasRead(): boolean {
    return this.kept !== null
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    const end = offset + target.length
    if (end <= Math.max(8, this.head.length)) {
      target.set(this.head.subarray(offset, end))
      return
    }
    const range = this.kept?.ranges.find(([from, size]) => offset >= from && end <= from + size)
    if (range !== undefined && this.local === null) {
      return await this.kept?.source.read(range[2] + offset - range[0], target, signal)
    }
    await this.folder.use(this)
    await (await this.whole()).read(offset, target, signal)
  }

  private async fetchHead(): Promise<Uint8Array<ArrayBuffer>> {
    const prefix = new Uint8Array(await this.folder.fetchStart(this.file, Math.min(8, this.size)))
    if (prefix.length < 8) return prefix
    const length = Number(new DataView(prefix.buffer).getBigUint64(0, true))
    if (length > MAX_HEADER_BYTES || 8 + length > this.size) return prefix // the reader of headers says what is wrong
    return new Uint8Array(await this.folder.fetchStart(this.file, 8 + length))
  }

  /** Starts to download what will be read soon. Trouble shows when it is read. */
  sendFor(): void {
    if (this.kept === null) this.whole().catch(() => {})
  }

  /** Keeps what is not an expert, and removes the rest. */
  async giveUp(): Promise<void> {
    if (this.local === null) return
    const source = await this.local
    if (this.kept === null) await this.keep(source)
    this.local = null
    await source.close()
    await rm(this.folder.path(this.name), { force: true })
  }

  async close(): Promise<void> {
    this.folder.end()
    const local = await this.local?.catch(() => null)
    this.local = null
    await local?.close()
    await this.kept?.source.close()
    this.kept = null
  }

  private whole(): Promise<ByteSource> {
    if (this.local === null) {
      const local = this.folder.download(this.file).then(openFileSource)
      this.local = local
      local.catch(() => {
        if (this.local === local) this.local = null
      })
    }
    return this.local
  }

  private async keep(source: ByteSource): Promise<void> {
    const path = this.folder.path(`${this.name}.kept`)
    const ranges = await writing(path, () => this.writeKept(source, path))
    await writeWhole(`${path}.json`, Buffer.from(JSON.stringify(ranges)))
    this.kept = { source: await openFileSource(path), ranges }
  }

  private async writeKept(source: ByteSource, path: string): Promise<KeptRange[]> {
    const { tensors } = await readSafetensorsHeader(this)
    const ranges: KeptRange[] = []
    const handle = await open(path + PART, 'w')
    try {
      const block = new Uint8Array(4 * 2 ** 20)
      let place = 0
      for (const { name, offset, size } of tensors.values()) {
        if (isExpert(name)) continue
        ranges.push([offset, size, place])
        for (let done = 0; done < size; ) {
          const piece = block.subarray(0, Math.min(block.length, size - done))
          await source.read(offset + done, piece)
          await writeAll(handle, piece, place + done)
          done += piece.length
        }
        place += size
      }
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(path + PART, path)
    return ranges
  }

  private async openKept() {
    const path = this.folder.path(`${this.name}.kept`)
    try {
      const ranges = JSON.parse(await readFile(`${path}.json`, 'utf8')) as KeptRange[]
      return { source: await openFileSource(path), ranges }
    } catch {
      return null
    }
  }
}

/** Experts are nearly all of a model, and each is read once. */
export function isExpert(tensor: string): boolean {
  return /\.mlp\.(experts|switch_mlp)\./.test(tensor)
}

async function writeWhole(path: string, bytes: Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true })
  const temporary = `${path}.${createHash('sha256').update(bytes).digest('hex').slice(0, 8)}`
  await writing(path, async () => {
    const handle = await open(temporary, 'w')
    try {
      await handle.writeFile(bytes)
      await handle.sync()
    } finally {
      await handle.close()
    }
    await rename(temporary, path)
  })
}
