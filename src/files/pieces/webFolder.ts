// A packed model on a server as a folder: what was fetched once is kept in the browser's storage and read from there. Small
// files are asked for at every visit and taken from the cache when the server does not answer. The resident part is
// kept in pieces as it arrives, so that a download goes on where it stopped. Experts are fetched when they are read.

import { FetchError } from '../../base/errors.js'
import { type PackedShapes, readMetadata, readShapes } from '../packed/openPacked.js'
import {
  CONFIG_NAME,
  expertFileName,
  GENERATION_CONFIG_NAME,
  MANIFEST_NAME,
  METADATA_NAME,
  WEIGHTS_NAME,
} from '../packed/packedNames.js'
import type { FileIdentity, RangeFetcher } from '../rangeFetcher.js'
import type { ByteSource, Folder } from '../source.js'
import { decodeUtf8 } from '../strictJson.js'
import type { ModelCache } from './modelCache.js'
import { PieceSource } from './pieceSource.js'
import type { ExpertTraffic } from './recordSource.js'
import { RecordSource } from './recordSource.js'
import type { RecordStore } from './recordStore.js'
import { xxHash32 } from './xxHash.js'

const MAX_TEXT_BYTES = 512 * 2 ** 20 // more than any tokenizer or index has

/** What opening a model reads one after the other: asked for all at once, they take the time of one. */
const FIRST_TEXTS = [
  ...[METADATA_NAME, CONFIG_NAME, MANIFEST_NAME, GENERATION_CONFIG_NAME],
  ...['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'],
]

interface ExpertFile {
  readonly place: number // among the layers with experts
  readonly shapes: PackedShapes
  readonly store: RecordStore | null
}

export class WebFolder implements Folder {
  readonly traffic: ExpertTraffic = {
    networkReads: 0,
    networkBytes: 0,
    cacheReads: 0,
    cacheBytes: 0,
    spareReads: 0,
    spareBytes: 0,
  }
  private readonly texts = new Map<string, Promise<string | null>>()
  private readonly experts = new Map<string, ExpertFile>()
  private expertStore: RecordStore | null = null
  private hasWholeFiles = false

  constructor(
    readonly fetcher: RangeFetcher,
    readonly cache: ModelCache | null, // null: nothing is kept
    private readonly onNotice: (line: string) => void,
  ) {}

  /** Said once. */
  onWholeFiles(): void {
    if (this.hasWholeFiles) return
    this.hasWholeFiles = true
    this.onNotice('the host sends only whole files: all experts of a layer arrive with the first')
  }

  get location(): string {
    return this.fetcher.base.replace(/\/$/, '')
  }

  /** Experts of the set in use that are stored. */
  get expertsCached(): number {
    return this.expertStore?.count ?? 0
  }

  readText(name: string): Promise<string | null> {
    let text = this.texts.get(name)
    if (text === undefined) {
      text = this.loadText(name)
      this.texts.set(name, text)
    }
    return text
  }

  /** Reads the model's shapes, and from then on keeps experts in the cache. */
  async prepare(options: { readonly expertBits?: 2 }, signal?: AbortSignal): Promise<PackedShapes> {
    for (const name of FIRST_TEXTS) this.readText(name).catch(() => {}) // told to whoever reads it
    const shapes = await readShapes(this, options)
    const { config, layout, set } = shapes
    const hasExperts = config.expertLayers.length > 0
    const store = hasExperts ? ((await this.cache?.openRecords(set, layout.expertSize)) ?? null) : null
    this.expertStore = store
    for (const [place, layer] of config.expertLayers.entries()) {
      this.experts.set(expertFileName(set, layer), { place, shapes, store })
    }
    // Where the folder has no list of its files, each is asked for: all at once.
    await Promise.all([WEIGHTS_NAME, ...this.experts.keys()].map(name => this.identify(name, signal)))
    await this.cache?.saveInfo()
    return shapes
  }

  async open(name: string): Promise<ByteSource> {
    const { size, tag } = await this.identify(name)
    const file = this.experts.get(name)
    if (file !== undefined) {
      const { expertSize } = file.shapes.layout
      const firstKey = file.place * file.shapes.config.numExperts
      const version = xxHash32(new TextEncoder().encode(tag)).toString(16)
      return new RecordSource(name, size, { recordBytes: expertSize, firstKey, store: file.store, version }, this)
    }
    return await PieceSource.open(name, size, this)
  }

  /** Size and version of a file: from the model's own list of checksums, else from the server, else as it was. */
  private async identify(name: string, signal?: AbortSignal): Promise<FileIdentity> {
    const listed = (await readMetadata(this))?.files.get(name)
    const known = this.cache?.info.files[name]
    let now: FileIdentity
    if (listed !== undefined) now = { size: listed.size, tag: `sha256 ${listed.sha256}` }
    else {
      try {
        now = await this.fetcher.identify(name, { signal, once: this.fetcher.offline })
      } catch (error) {
        if (known === undefined || !isUnreachable(error)) throw error
        now = known
      }
    }
    if (this.cache === null || (known?.size === now.size && known.tag === now.tag)) return now
    this.cache.info.files[name] = { size: now.size, tag: now.tag }
    // Stored before a tag was known to be of it, or of another version: not to be trusted.
    const file = this.experts.get(name)
    const { numExperts = 0 } = file?.shapes.config ?? {}
    if (file !== undefined) file.store?.drop(file.place * numExperts, (file.place + 1) * numExperts)
    else await PieceSource.forget(name, this.cache)
    return now
  }

  private async loadText(name: string): Promise<string | null> {
    const { cache } = this
    const cached = (await cache?.readFile(name)) ?? null
    const absent = cache?.info.absent.includes(name) ?? false
    let bytes: Uint8Array | null
    try {
      bytes = await this.fetcher.whole(name, MAX_TEXT_BYTES, {
        once: this.fetcher.offline || cached !== null || absent,
      })
    } catch (error) {
      if (!isUnreachable(error) || (cached === null && !absent)) throw error
      if (name === METADATA_NAME) this.onNotice('the server cannot be reached: the stored copy of the model is used')
      return cached === null ? null : decodeUtf8(cached, `${this.location}/${name}`)
    }
    if (cache !== null) await this.remember(cache, name, bytes, cached)
    return bytes === null ? null : decodeUtf8(bytes, `${this.location}/${name}`)
  }

  private async remember(cache: ModelCache, name: string, bytes: Uint8Array | null, cached: Uint8Array | null) {
    const { info } = cache
    info.absent = info.absent.filter(other => other !== name)
    if (bytes === null) info.absent.push(name)
    else if (cached === null || !sameBytes(bytes, cached)) await cache.writeFile(name, bytes)
  }
}

function isUnreachable(error: unknown): boolean {
  return error instanceof FetchError && (error.code === 'UNREACHABLE' || (error.status ?? 0) >= 500)
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i])
}
