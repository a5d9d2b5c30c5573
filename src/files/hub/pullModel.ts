// Brings a model from a hub into the local store: packed while it is downloaded, shard by shard; GGUF files when they are
// there. A run that was stopped goes on where it was, as long as the model on the hub is the same.
import { existsSync } from 'node:fs'
import { mkdir, readdir, rename, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { type ConvertResult, isRefusal } from '../convert/convert.js'
import { type PackOptions, packInto } from '../convert/packFolder.js'
import { openFileSource } from '../fileSource.js'
import { lockFolder } from '../folderLock.js'
import { openGgufFolder } from '../gguf/ggufFolder.js'
import { downloadLock, storedModelFolder, storeRoot } from '../models/modelStore.js'
import { bytesOnDisk, writePullName } from '../models/storedModels.js'
import { METADATA_NAME } from '../packed/packedNames.js'
import type { Folder } from '../source.js'
import { type DownloadOptions, PART } from './downloadFile.js'
import type { GgufChoice } from './ggufChoice.js'
import type { HubOptions } from './hubClient.js'
import { HubFolder } from './hubFolder.js'
import { type PullPlan, planPull } from './pullPlan.js'
import { checkRoom, sizePull } from './pullSize.js'

export interface PullOptions extends HubOptions, Omit<PackOptions, 'identity' | 'onProgress'> {
  readonly revision?: string // default main
  readonly root?: string // of the store
  readonly download?: DownloadOptions
  readonly onProgress?: (progress: PullProgress) => void
}

export interface PullResult extends ConvertResult {
  readonly folder: string
  readonly commit: string
}

export interface PullProgress {
  readonly phase: string
  readonly loaded: number
  readonly total: number
  /** The part of `loaded` that was there before. */
  readonly reused: number
}

/** `model` as `planPull` takes it, or a plan that was made before. */
export async function pullModel(model: string | PullPlan, options: PullOptions = {}): Promise<PullResult> {
  const plan = typeof model === 'string' ? await planPull(model, options) : model
  const { client, commit, files, gguf, name } = plan
  const { id } = client
  const root = options.root ?? storeRoot()
  const target = storedModelFolder(root, name)
  const isPacked = existsSync(join(target, METADATA_NAME))
  const size = await sizePull(plan, options, options.signal)
  if (!isPacked) await checkRoom(root, size, await bytesOnDisk(root, basename(target)))
  const downloads = join(root, 'downloads')
  const kept = `${basename(target)}@${commit}` // the folder with what was downloaded so far
  const lock = await lockFolder(downloadLock(root, basename(target)), {
    signal: options.signal,
    pace: options.lockPace,
    onWait: () => options.onNotice?.(`another process is pulling ${name}: waiting for it`),
    inherit: (left, dead) => takeUp(join(left, kept), join(downloads, kept), dead),
  })
  const signal = options.signal === undefined ? lock.signal : AbortSignal.any([options.signal, lock.signal])
  // While it grows, it lies where nobody but the holder of the lock can write.
  const cache = join(lock.folder, kept)
  try {
    await removeOthers(downloads, basename(target), kept, lock.folder)
    await rename(join(downloads, kept), cache).catch(() => mkdir(cache))
    await writePullName(cache, name)
    const { downloadBytes: total } = plan
    let loaded = 0
    let reused = 0
    const tell = () => options.onProgress?.({ phase: 'download', loaded: Math.min(loaded, total), total, reused })
    const hub = new HubFolder(client, commit, files, cache, {
      onNotice: options.onNotice,
      ...options.download,
      signal,
      onBytes: bytes => {
        loaded += bytes
        tell()
      },
      onReused: bytes => {
        loaded += bytes
        reused += bytes
        tell()
      },
    })
    const folder = gguf === null ? hub : isPacked ? await headersOf(plan, gguf) : await downloadGguf(hub, gguf)
    const result = await packInto(folder, target, {
      ...options,
      signal,
      name: options.name ?? name,
      identity: gguf === null ? `${id}@${commit}` : `${id}@${commit}:${gguf.parts[0].path}`,
      // Else packing goes on beside the download, which is what takes time.
      onProgress: gguf === null ? undefined : progress => options.onProgress?.({ ...progress, reused: 0 }),
    })
    return { ...result, folder: target, commit }
  } catch (error) {
    if (!isRefusal(error)) await rename(cache, join(downloads, kept)).catch(() => {})
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

/** Enough to see that the packed model is that of these files. */
function headersOf({ openStart }: PullPlan, { parts }: GgufChoice): Promise<Folder> {
  return openGgufFolder(parts[0].path, openStart)
}

/** All parts on the disk: their tensors are read in the order of the packed folder, which is not theirs. */
async function downloadGguf(hub: HubFolder, { parts }: GgufChoice): Promise<Folder> {
  const paths: string[] = []
  for (const part of parts) paths.push(await hub.download(part))
  return await openGgufFolder(paths[0], openFileSource)
}
