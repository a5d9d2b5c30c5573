// A packed model on an HTTP server or in S3 as a folder of Node: small files are fetched when it is opened, the resident part
// and experts by ranges when they are read, and kept on the disk up to a budget. A replica answers before all of it is here.
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { ModelNotFoundError, OptionError } from '../../base/errors.js'
import { storeRoot } from '../models/modelStore.js'
import { checkName } from '../nodeFolder.js'
import { readMetadata, readShapes } from '../packed/openPacked.js'
import { CONFIG_NAME } from '../packed/packedNames.js'
import { DiskCache } from '../pieces/diskCache.js'
import { RangeFetcher } from '../rangeFetcher.js'
import type { ByteSource, Folder } from '../source.js'
import { decodeUtf8 } from '../strictJson.js'
import { RemoteSource } from './remoteSource.js'
import { isS3Url, S3Client } from './s3Client.js'

export interface RemoteOptions {
  /** Disk for what was fetched. Default 20 GiB; 0 keeps nothing. */
  readonly cacheBytes?: number
  readonly cacheFolder?: string
  readonly onNotice?: (line: string) => void
  readonly signal?: AbortSignal
}

const DEFAULT_CACHE_BYTES = 20 * 2 ** 30
const PIECE_BYTES = 4 * 2 ** 20
const MOST_TEXT_BYTES = 512 * 2 ** 20 // more than any tokenizer or index has
const EXPERTS = /^packed_experts(_2bit)?\/layer_\d+\.bin$/

/** Where a model is to be read from a server. */
export function isRemote(place: string): boolean {
  return /^(https?|s3):\/\//i.test(place)
}

export async function openRemoteFolder(url: string, options: RemoteOptions = {}): Promise<RemoteFolder> {
  const { cacheBytes = DEFAULT_CACHE_BYTES, cacheFolder = join(storeRoot(), 'remote') } = options
  const notice = options.onNotice ?? (() => {})
  if (!(cacheBytes >= 0)) throw new OptionError('modelCache', cacheBytes, 'a number of bytes')
  const fetcher = isS3Url(url) ? await s3Fetcher(url) : httpFetcher(url)
  const cache = cacheBytes === 0 ? null : await DiskCache.open(cacheFolder, cacheBytes, notice)
  const folder = new RemoteFolder(fetcher, cache, options.signal)
  if ((await folder.readText(CONFIG_NAME)) === null) {
    throw new ModelNotFoundError(folder.location, `holds no ${CONFIG_NAME}: it is not a packed model`)
  }
  return folder
}

function httpFetcher(url: string): RangeFetcher {
  const base = new URL(url)
  const headers: Record<string, string> = {}
  if (base.username !== '') {
    const user = `${decodeURIComponent(base.username)}:${decodeURIComponent(base.password)}`
    headers.authorization = `Basic ${Buffer.from(user).toString('base64')}`
    base.username = ''
    base.password = ''
  }
  base.search = ''
  base.hash = ''
  return new RangeFetcher(base.href.replace(/\/*$/, '/'), headers)
}

async function s3Fetcher(url: string): Promise<RangeFetcher> {
  const client = await S3Client.open(url)
  return new RangeFetcher(client.base, {}, (target, init) => client.fetch(target, init))
}

export class RemoteFolder implements Folder {
  private readonly texts = new Map<string, Promise<string | null>>()

  constructor(
    readonly fetcher: RangeFetcher,
    readonly cache: DiskCache | null,
    private readonly signal?: AbortSignal,
  ) {}

  get location(): string {
    return this.fetcher.base.replace(/\/$/, '')
  }

  readText(name: string): Promise<string | null> {
    let text = this.texts.get(name)
    if (text === undefined) {
      text = this.loadText(name)
      this.texts.set(name, text)
      text.catch(() => this.texts.delete(name)) // another time it may be there
    }
    return text
  }

  async open(name: string): Promise<ByteSource> {
    checkName(name, this.location)
    const listed = (await readMetadata(this))?.files.get(name)
    const { size, tag } =
      listed === undefined
        ? await this.fetcher.identify(name, { signal: this.signal })
        : { size: listed.size, tag: listed.sha256 }
    const pieceBytes = EXPERTS.test(name) ? await this.expertBytes(name) : PIECE_BYTES
    const version = createHash('sha256').update(JSON.stringify([this.location, name, size, tag, pieceBytes]))
    const file = { path: name, size, pieceBytes, cacheName: version.digest('hex').slice(0, 40) }
    // Checksums are small, and what compares others must not be damaged itself.
    return new RemoteSource(file, this.fetcher, name.endsWith('.bin') ? this.cache : null)
  }

  private async expertBytes(name: string): Promise<number> {
    const { layout } = await readShapes(this, name.startsWith('packed_experts_2bit') ? { expertBits: 2 } : {})
    return layout.expertSize
  }

  private async loadText(name: string): Promise<string | null> {
    checkName(name, this.location)
    const bytes = await this.fetcher.whole(name, MOST_TEXT_BYTES, { signal: this.signal })
    return bytes === null ? null : decodeUtf8(bytes, `${this.location}/${name}`)
  }
}
