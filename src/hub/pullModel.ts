// Brings a model from a hub into the local store: packed while it is downloaded, shard by shard. A run that was stopped
// goes on where it was, as long as the model on the hub is the same.
import { mkdir, readdir, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { HubError } from '../errors.js'
import { type ConvertOptions, type ConvertResult, convert } from '../storage/convert.js'
import { lockFile } from '../storage/folderLock.js'
import { storedModelFolder, storeRoot } from '../storage/modelStore.js'
import { openOutputFolder } from '../storage/outputFolder.js'
import { CONFIG_NAME } from '../storage/packedNames.js'
import type { DownloadOptions } from './downloadFile.js'
import { HubClient, type HubFile, type HubOptions } from './hubClient.js'
import { HubFolder } from './hubFolder.js'

export interface PullOptions extends HubOptions, Omit<ConvertOptions, 'identity'> {
  readonly revision?: string // default main
  readonly root?: string // of the store
  readonly download?: DownloadOptions
}

export interface PullResult extends ConvertResult {
  readonly folder: string
  readonly commit: string
}

export async function pullModel(id: string, options: PullOptions = {}): Promise<PullResult> {
  const client = new HubClient(id, options)
  const root = options.root ?? storeRoot()
  const commit = await client.commit(options.revision ?? 'main', options.signal)
  const files = await client.files(commit, options.signal)
  if (!files.has(CONFIG_NAME)) throw new HubError(id, `has no ${CONFIG_NAME}: not a model that can be packed`)
  const target = storedModelFolder(root, id)
  const downloads = join(root, 'downloads')
  const cache = join(downloads, `${basename(target)}@${commit}`)
  await mkdir(cache, { recursive: true })
  const lock = await lockFile(join(downloads, `${basename(target)}.lock`), {
    signal: options.signal,
    onWait: () => options.onNotice?.(`another process is pulling ${id}: waiting for it`),
  })
  try {
    await removeOthers(downloads, basename(target), basename(cache))
    const total = weightBytes(files)
    let loaded = 0
    const folder = new HubFolder(client, commit, files, cache, {
      onNotice: options.onNotice,
      signal: options.signal,
      ...options.download,
      onBytes: bytes => {
        loaded += bytes
        options.onProgress?.({ phase: 'download', loaded: Math.min(loaded, total), total })
      },
    })
    const result = await convert(folder, await openOutputFolder(target), {
      ...options,
      name: options.name ?? id,
      identity: `${id}@${commit}`,
      onProgress: undefined, // the download is what takes time
    })
    await rm(cache, { recursive: true, force: true })
    return { ...result, folder: target, commit }
  } finally {
    await lock.release()
  }
}

/** What other commits of the model left behind is of no use any more. */
async function removeOthers(downloads: string, model: string, keep: string): Promise<void> {
  for (const name of await readdir(downloads)) {
    if (name.startsWith(`${model}@`) && name !== keep) await rm(join(downloads, name), { recursive: true, force: true })
  }
}

function weightBytes(files: ReadonlyMap<string, HubFile>): number {
  let total = 0
  for (const { path, size } of files.values()) if (path.endsWith('.safetensors')) total += size
  return total
}
