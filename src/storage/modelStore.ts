// The local store of packed models: `models/` holds what people pulled or put there, by name, `packed/` what was packed
// on the way when a raw folder was opened, `synthetic/` models of random weights for benchmarks. Finds, lists and removes; does not download or convert.
import { readdir, rename, rm, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { ModelNotFoundError } from '../errors.js'
import { isGgufName } from '../gguf/ggufFolder.js'
import { demoModelPath } from './demoModel.js'
import { lockFolder } from './folderLock.js'
import type { Metadata } from './manifest.js'
import { openNodeFolder, refuseEmptyName } from './nodeFolder.js'
import { readMetadata } from './openPacked.js'
import { JOURNAL_NAME, LOCK_NAME, METADATA_NAME } from './packedNames.js'

export const DEMO_NAME = 'demo'

const SHELVES = ['models', 'packed', 'synthetic'] as const
const REMOVING = '.removing-'

/** `MOEFLUX_HOME`, or `~/.cache/moeflux`. */
export function storeRoot(environment: NodeJS.ProcessEnv = process.env): string {
  return resolve(environment.MOEFLUX_HOME || join(homedir(), '.cache', 'moeflux'))
}

/** Where a model of this name lives in the store: 'org/name' is one folder, 'org--name'. */
export function storedModelFolder(root: string, name: string): string {
  return join(root, 'models', folderNameFor(name))
}

/** Where a raw folder's packed form is kept, by what it holds. */
export function packedCacheFolder(root: string, name: string, key: string): string {
  return join(root, 'packed', `${folderNameFor(name)}-${key}`)
}

export interface StoredModel {
  readonly id: string // the folder's name: never ambiguous
  readonly name: string
  readonly folder: string
  readonly shelf: (typeof SHELVES)[number]
  readonly bytes: number
  readonly metadata: Metadata | null // null: not finished, or packed by others
  readonly state: 'ready' | 'unfinished' | 'foreign'
}

export async function listModels(root: string): Promise<StoredModel[]> {
  const models: StoredModel[] = []
  for (const shelf of SHELVES) {
    for (const entry of await readdir(join(root, shelf), { withFileTypes: true }).catch(() => [])) {
      if (entry.isDirectory() && !entry.name.startsWith('.')) {
        models.push(await describeModel(join(root, shelf, entry.name), entry.name, shelf))
      }
    }
  }
  return models.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id < b.id ? -1 : 1))
}

/** Where a model is: a folder or GGUF file that is there, the name of a stored model, or the built-in demo's. */
export async function findModel(nameOrFolder: string, root = storeRoot()): Promise<string> {
  refuseEmptyName(nameOrFolder)
  if (await isFolder(resolve(nameOrFolder))) return resolve(nameOrFolder)
  if (isGgufName(nameOrFolder) && (await stat(nameOrFolder).catch(() => null)) !== null) return resolve(nameOrFolder)
  const { model, others } = await pickModel(nameOrFolder, root)
  if (model !== null) return model.folder
  if (nameOrFolder === DEMO_NAME) return demoModelPath()
  if (others.length > 0) throw ambiguous(nameOrFolder, others)
  const detail = `no such folder or file, and the store has no model of this name ('moeflux list' shows them)`
  throw new ModelNotFoundError(nameOrFolder, detail)
}

/** Removes a model from the store and gives its description. Folders outside the store are never touched. */
export async function removeModel(nameOrId: string, root = storeRoot()): Promise<StoredModel> {
  const { model, others } = await pickModel(nameOrId, root)
  if (others.length > 0) throw ambiguous(nameOrId, others)
  if (model === null) throw new ModelNotFoundError(nameOrId, "the store has no such model ('moeflux list' shows them)")
  const lock = await lockFolder(join(model.folder, LOCK_NAME), { wait: false }) // not while it is being written
  try {
    // Under another name first: a removal that is cut off must not leave half a model that looks whole.
    const doomed = join(root, model.shelf, REMOVING + model.id)
    await rm(doomed, { recursive: true, force: true })
    await rename(model.folder, doomed)
    await rm(doomed, { recursive: true, force: true })
  } finally {
    await lock.release()
  }
  return model
}

async function pickModel(
  nameOrId: string,
  root: string,
): Promise<{ model: StoredModel | null; others: StoredModel[] }> {
  const models = await listModels(root)
  const byId = models.find(model => model.id === nameOrId)
  if (byId !== undefined) return { model: byId, others: [] }
  const named = models.filter(model => model.name === nameOrId)
  return named.length === 1 ? { model: named[0], others: [] } : { model: null, others: named }
}

function ambiguous(name: string, models: readonly StoredModel[]): ModelNotFoundError {
  return new ModelNotFoundError(name, `several models have this name; say which: ${models.map(m => m.id).join(', ')}`)
}

async function describeModel(folder: string, id: string, shelf: StoredModel['shelf']): Promise<StoredModel> {
  const files = await readdir(folder, { withFileTypes: true, recursive: true })
  let bytes = 0
  for (const file of files) {
    if (file.isFile()) bytes += (await stat(join(file.parentPath, file.name)).catch(() => null))?.size ?? 0
  }
  const has = (name: string) => files.some(file => file.parentPath === folder && file.name === name)
  const metadata = has(METADATA_NAME)
    ? await readMetadata(await openNodeFolder(folder, { links: 'any' })).catch(() => null)
    : null
  const state = metadata !== null ? 'ready' : has(JOURNAL_NAME) ? 'unfinished' : 'foreign'
  return { id, name: metadata?.model ?? id.replaceAll('--', '/'), folder, shelf, bytes, metadata, state }
}

function folderNameFor(name: string): string {
  return name
    .replaceAll('/', '--')
    .replace(/[^a-zA-Z0-9._-]/g, '_')
    .replace(/^\.+/, '_')
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() ?? false
}
