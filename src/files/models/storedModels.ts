// What the local store holds: `models/` what people pulled or put there, by name, `packed/` what was packed on the way when
// a raw folder was opened, `synthetic/` models of random weights for benchmarks, `downloads/` what pulls that are not
// finished have brought so far, each with a file that names the model. Writes nothing else.
import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { writing } from '../diskFull.js'
import { openNodeFolder } from '../nodeFolder.js'
import type { Metadata } from '../packed/manifest.js'
import { readMetadata } from '../packed/openPacked.js'
import { JOURNAL_NAME, METADATA_NAME } from '../packed/packedNames.js'
import { folderNameFor } from './modelName.js'

const SHELVES = ['models', 'packed', 'synthetic'] as const
const PULL_NAME = 'moeflux-pull.json'
const SMALL_BYTES = 4096
const BLOCK_BYTES = 512 // what `stat` counts in, everywhere

export interface StoredModel {
  readonly id: string // the folder's name: never ambiguous
  readonly name: string
  readonly folder: string
  readonly shelf: (typeof SHELVES)[number]
  readonly bytes: number // on the disk, with what was downloaded for it
  readonly metadata: Metadata | null // null: not finished, or packed by others
  readonly state: 'ready' | 'unfinished' | 'foreign'
}

export async function modelsIn(root: string): Promise<StoredModel[]> {
  const models: StoredModel[] = []
  const downloads = await listDownloads(root)
  for (const shelf of SHELVES) {
    for (const entry of await readdir(join(root, shelf), { withFileTypes: true }).catch(() => [])) {
      if (!entry.isDirectory() || entry.name.startsWith('.')) continue
      const more = shelf === 'models' ? (downloads.get(entry.name) ?? []) : []
      const model = await describeModel(join(root, shelf, entry.name), entry.name, shelf, more)
      if (shelf === 'models') downloads.delete(entry.name)
      const bytes = model.bytes + (await diskBytes(more))
      // Where a pull was refused, nothing but a lock may be left.
      if (bytes > 0 || model.state === 'ready') models.push({ ...model, bytes })
    }
  }
  for (const [id, folders] of downloads) {
    const bytes = await diskBytes(folders)
    if (bytes === 0) continue
    const folder = join(root, 'models', id)
    const name = (await nameOfDownload(id, folders)) ?? nameOfId(id)
    models.push({ id, name, folder, shelf: 'models', bytes, metadata: null, state: 'unfinished' })
  }
  return models.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id < b.id ? -1 : 1))
}

/** What a model of the shelf `models` takes on the disk, with what was downloaded for it. */
export async function bytesOnDisk(root: string, id: string): Promise<number> {
  return await diskBytes([join(root, 'models', id), ...((await listDownloads(root)).get(id) ?? [])])
}

/** The folders with what was downloaded of models, by the models' ids. */
export async function listDownloads(root: string): Promise<Map<string, string[]>> {
  const folders = new Map<string, string[]>()
  for (const name of await readdir(join(root, 'downloads')).catch(() => [])) {
    const id = /^(.+?)(?:@[0-9a-f]+|\.lock)$/.exec(name)?.[1]
    if (id !== undefined) folders.set(id, [...(folders.get(id) ?? []), join(root, 'downloads', name)])
  }
  return folders
}

async function describeModel(
  folder: string,
  id: string,
  shelf: StoredModel['shelf'],
  downloads: readonly string[],
): Promise<StoredModel> {
  const names = await readdir(folder)
  const metadata = names.includes(METADATA_NAME)
    ? await readMetadata(await openNodeFolder(folder, { links: 'any' })).catch(() => null)
    : null
  const state = metadata !== null ? 'ready' : names.includes(JOURNAL_NAME) ? 'unfinished' : 'foreign'
  const bytes = await diskBytes([folder])
  const name = metadata?.model ?? (await nameOfDownload(id, downloads)) ?? nameOfId(id)
  return { id, name, folder, shelf, bytes, metadata, state }
}

/** What files take: one that is being written is as long as it will be, with nothing in most of it. */
async function diskBytes(folders: readonly string[]): Promise<number> {
  let bytes = 0
  for (const folder of folders) {
    for (const file of await readdir(folder, { withFileTypes: true, recursive: true }).catch(() => [])) {
      const info = file.isFile() ? await stat(join(file.parentPath, file.name)).catch(() => null) : null
      // Some file systems keep small files elsewhere and count no blocks of them; a large one without any is empty.
      if (info === null || file.name === PULL_NAME) continue
      const hasBlocks = info.blocks > 0 || info.size > SMALL_BYTES
      bytes += Math.min(info.size, hasBlocks ? info.blocks * BLOCK_BYTES : info.size)
    }
  }
  return bytes
}

/** Says in the folder of a download which model it is of: the folder's own name has no ':'. */
export async function writePullName(folder: string, name: string): Promise<void> {
  const path = join(folder, PULL_NAME)
  await writing(path, () => writeFile(path, JSON.stringify({ model: name })))
}

/** Null where nothing says it. What a hub sent lies in these folders, too, so that only a plain name of this id counts. */
async function nameOfDownload(id: string, folders: readonly string[]): Promise<string | null> {
  for (const folder of folders) {
    const entries = await readdir(folder, { withFileTypes: true, recursive: true }).catch(() => [])
    for (const entry of entries.filter(each => each.name === PULL_NAME && each.isFile())) {
      const name = await readPullName(join(entry.parentPath, entry.name)).catch(() => null)
      if (typeof name === 'string' && !/\p{C}/u.test(name) && folderNameFor(name) === id) return name
    }
  }
  return null
}

async function readPullName(path: string): Promise<unknown> {
  if ((await stat(path)).size > SMALL_BYTES) return null
  return (JSON.parse(await readFile(path, 'utf8')) as { model?: unknown } | null)?.model
}

function nameOfId(id: string): string {
  return id.replaceAll('--', '/')
}
