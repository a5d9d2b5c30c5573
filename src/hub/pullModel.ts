// Brings a model from a hub into the local store: packed while it is downloaded, shard by shard. A run that was stopped
// goes on where it was, as long as the model on the hub is the same.
import { mkdir, readdir, rename, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { HubError } from '../errors.js'
import { type ConvertResult, isRefusal } from '../storage/convert.js'
import { lockFolder } from '../storage/folderLock.js'
import { storedModelFolder, storeRoot } from '../storage/modelStore.js'
import { CONFIG_NAME } from '../storage/packedNames.js'
import { type PackOptions, packInto } from '../storage/packFolder.js'
import { type DownloadOptions, PART } from './downloadFile.js'
import { HubClient, type HubFile, type HubOptions } from './hubClient.js'
import { HubFolder } from './hubFolder.js'

export interface PullOptions extends HubOptions, Omit<PackOptions, 'identity'> {
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
  const name = `${basename(target)}@${commit}` // of the folder with what was downloaded so far
  const lock = await lockFolder(join(downloads, `${basename(target)}.lock`), {
    signal: options.signal,
    pace: options.lockPace,
    onWait: () => options.onNotice?.(`another process is pulling ${id}: waiting for it`),
    inherit: (left, dead) => takeUp(join(left, name), join(downloads, name), dead),
  })
  const signal = options.signal === undefined ? lock.signal : AbortSignal.any([options.signal, lock.signal])
  // While it grows, it lies where nobody but the holder of the lock can write.
  const cache = join(lock.folder, name)
  try {
    await removeOthers(downloads, basename(target), name, lock.folder)
    await rename(join(downloads, name), cache).catch(() => mkdir(cache))
    const total = weightBytes(files)
    let loaded = 0
    const folder = new HubFolder(client, commit, files, cache, {
      onNotice: options.onNotice,
      ...options.download,
      signal,
      onBytes: bytes => {
        loaded += bytes
        options.onProgress?.({ phase: 'download', loaded: Math.min(loaded, total), total })
      },
    })
    const result = await packInto(folder, target, {
      ...options,
      signal,
      name: options.name ?? id,
      identity: `${id}@${commit}`,
      onProgress: undefined, // the download is what takes time
    })
    return { ...result, folder: target, commit }
  } catch (error) {
    if (!isRefusal(error)) await rename(cache, join(downloads, name)).catch(() => {})
    throw await lock.explain(error)
  } finally {
    await lock.release()
  }
}

/** Keeps what a former holder had downloaded; of one that may wake up again, only the files that it had closed. */
async function takeUp(left: string, kept: string, dead: boolean): Promise<void> {
  const entries = await readdir(left, { recursive: true, withFileTypes: true }).catch(() => null)
  if (entries === null) return
  for (const entry of dead ? [] : entries) {
    if (entry.name.endsWith(PART)) await rm(join(entry.parentPath, entry.name), { force: true })
  }
  await rename(left, kept).catch(() => {}) // there is one already
}

/** What other commits of the model left behind is of no use any more. It goes with the folder of the lock. */
async function removeOthers(downloads: string, model: string, keep: string, bin: string): Promise<void> {
  for (const name of await readdir(downloads)) {
    if (name.startsWith(`${model}@`) && name !== keep) await rename(join(downloads, name), join(bin, name))
  }
}

function weightBytes(files: ReadonlyMap<string, HubFile>): number {
  let total = 0
  for (const { path, size } of files.values()) if (path.endsWith('.safetensors')) total += size
  return total
}
