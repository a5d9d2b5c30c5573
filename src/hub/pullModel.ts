// Brings a model from a hub into the local store: packed while it is downloaded, shard by shard; GGUF files when they are
// there. A run that was stopped goes on where it was, as long as the model on the hub is the same.
import { mkdir, readdir, rename, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { HubError } from '../errors.js'
import { checkArchitecture } from '../gguf/ggufConfig.js'
import { GgufFields } from '../gguf/ggufFields.js'
import { readGgufHeader } from '../gguf/ggufFile.js'
import { openGgufFolder } from '../gguf/ggufFolder.js'
import type { Folder } from '../storage/byteSource.js'
import { type ConvertResult, isRefusal } from '../storage/convert.js'
import { openFileSource } from '../storage/fileSource.js'
import { lockFolder } from '../storage/folderLock.js'
import { storedModelFolder, storeRoot } from '../storage/modelStore.js'
import { CONFIG_NAME } from '../storage/packedNames.js'
import { type PackOptions, packInto } from '../storage/packFolder.js'
import { type DownloadOptions, PART } from './downloadFile.js'
import { chooseGguf, type GgufChoice, splitModelId } from './ggufChoice.js'
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

/** `model`: 'owner/name', and of a repository with GGUF files which: 'owner/name:Q4_K_M'. */
export async function pullModel(model: string, options: PullOptions = {}): Promise<PullResult> {
  const { id, precision } = splitModelId(model)
  const client = new HubClient(id, options)
  const root = options.root ?? storeRoot()
  const commit = await client.commit(options.revision ?? 'main', options.signal)
  const files = await client.files(commit, options.signal)
  const gguf = chooseGguf(id, precision, files)
  if (gguf !== null) await checkGguf(client, commit, gguf, options.signal)
  else if (!files.has(CONFIG_NAME)) throw new HubError(id, `has no ${CONFIG_NAME}: not a model that can be packed`)
  const name = gguf === null ? id : `${id}:${gguf.name}`
  const target = storedModelFolder(root, name)
  const downloads = join(root, 'downloads')
  const kept = `${basename(target)}@${commit}` // the folder with what was downloaded so far
  const lock = await lockFolder(join(downloads, `${basename(target)}.lock`), {
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
    const total = weightBytes(files, gguf)
    let loaded = 0
    const hub = new HubFolder(client, commit, files, cache, {
      onNotice: options.onNotice,
      ...options.download,
      signal,
      onBytes: bytes => {
        loaded += bytes
        options.onProgress?.({ phase: 'download', loaded: Math.min(loaded, total), total })
      },
    })
    const folder = gguf === null ? hub : await downloadGguf(hub, gguf)
    const result = await packInto(folder, target, {
      ...options,
      signal,
      name: options.name ?? name,
      identity: gguf === null ? `${id}@${commit}` : `${id}@${commit}:${gguf.parts[0].path}`,
      onProgress: undefined, // the download is what takes time
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

/** What will never run is not downloaded: the start of the first part says what it is. */
async function checkGguf(
  client: HubClient,
  commit: string,
  { parts }: GgufChoice,
  signal?: AbortSignal,
): Promise<void> {
  const [{ path, size }] = parts
  const url = client.fileUrl(commit, path)
  const { metadata } = await readGgufHeader({
    name: `${client.id}/${path}`,
    size,
    async read(_, target) {
      target.set(await client.fetchStart(url, target.length, size, signal))
    },
    async close() {},
  })
  checkArchitecture(new GgufFields(metadata, `${client.id}/${path}`))
}

/** All parts on the disk: their tensors are read in the order of the packed folder, which is not theirs. */
async function downloadGguf(hub: HubFolder, { parts }: GgufChoice): Promise<Folder> {
  const paths: string[] = []
  for (const part of parts) paths.push(await hub.download(part))
  return await openGgufFolder(paths[0], openFileSource)
}

function weightBytes(files: ReadonlyMap<string, HubFile>, gguf: GgufChoice | null): number {
  if (gguf !== null) return gguf.parts.reduce((sum, { size }) => sum + size, 0)
  let total = 0
  for (const { path, size } of files.values()) if (path.endsWith('.safetensors')) total += size
  return total
}
