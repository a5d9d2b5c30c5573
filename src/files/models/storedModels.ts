// What the local store holds: `models/` what people pulled or put there, by name, `packed/` what was packed on the way when
// a raw folder was opened, `synthetic/` models of random weights for benchmarks, `downloads/` what pulls that are not
// finished have brought so far. Looks only.
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { openNodeFolder } from '../nodeFolder.js'
import type { Metadata } from '../packed/manifest.js'
import { readMetadata } from '../packed/openPacked.js'
import { JOURNAL_NAME, METADATA_NAME } from '../packed/packedNames.js'

const SHELVES = ['models', 'packed', 'synthetic'] as const
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
      const model = await describeModel(join(root, shelf, entry.name), entry.name, shelf)
      const more = shelf === 'models' ? (downloads.get(entry.name) ?? []) : []
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
    models.push({ id, name: nameOfId(id), folder, shelf: 'models', bytes, metadata: null, state: 'unfinished' })
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

async function describeModel(folder: string, id: string, shelf: StoredModel['shelf']): Promise<StoredModel> {
  const names = await readdir(folder)
  const metadata = names.includes(METADATA_NAME)
    ? await readMetadata(await openNodeFolder(folder, { links: 'any' })).catch(() => null)
    : null
  const state = metadata !== null ? 'ready' : names.includes(JOURNAL_NAME) ? 'unfinished' : 'foreign'
  const bytes = await diskBytes([folder])
  return { id, name: metadata?.model ?? nameOfId(id), folder, shelf, bytes, metadata, state }
}

/** What files take: one that is being written is as long as it will be, with nothing in most of it. */
async function diskBytes(folders: readonly string[]): Promise<number> {
  let bytes = 0
  for (const folder of folders) {
    for (const file of await readdir(folder, { withFileTypes: true, recursive: true }).catch(() => [])) {
      const info = file.isFile() ? await stat(join(file.parentPath, file.name)).catch(() => null) : null
      // Some file systems keep small files elsewhere and count no blocks of them; a large one without any is empty.
      if (info === null) continue
      const hasBlocks = info.blocks > 0 || info.size > SMALL_BYTES
      bytes += Math.min(info.size, hasBlocks ? info.blocks * BLOCK_BYTES : info.size)
    }
  }
  return bytes
}

function nameOfId(id: string): string {
  return id.replaceAll('--', '/')
}
