// The local store of packed models: finds by name, and removes. What lies where is told by storedModels.ts; downloads and
// converts nothing.
import { rename, rm, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ModelNotFoundError } from '../../base/errors.js'
import { lockFolder } from '../folderLock.js'
import { refuseEmptyName } from '../nodeFolder.js'
import { isGgufFile } from '../openSource.js'
import { LOCK_NAME } from '../packed/packedNames.js'
import { type HubReference, hubReference, meantModels } from './modelName.js'
import { listDownloads, modelsIn, type StoredModel } from './storedModels.js'

export const DEMO_NAME = 'demo'

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

/** Where a model is: its folder or GGUF file, or what is known of one that is not there. */
type Located =
  | { readonly path: string }
  | { readonly path: null; readonly hub: HubReference | null; readonly unfinished: StoredModel | null }

/** A folder or GGUF file that is there, a stored model by its name or a part of it, or the built-in demo. */
export async function locateModel(nameOrFolder: string, root = storeRoot()): Promise<Located> {
  refuseEmptyName(nameOrFolder)
  if (await isFolder(resolve(nameOrFolder))) return { path: resolve(nameOrFolder) }
  const isThere = (await stat(nameOrFolder).catch(() => null)) !== null
  if (isThere && (await isGgufFile(nameOrFolder))) return { path: resolve(nameOrFolder) }
  const models = meantModels(nameOrFolder, await modelsIn(root), folderNameFor)
  if (models.length > 1) throw ambiguous(nameOrFolder, models)
  const [model] = models
  const hub = hubReference(nameOrFolder)
  if (model !== undefined) {
    const isPulled = model.state === 'unfinished' && model.shelf === 'models'
    if (!isPulled) return { path: model.folder }
    return { path: null, hub: hub ?? hubReference(model.name), unfinished: model }
  }
  if (nameOrFolder === DEMO_NAME) return { path: demoModelPath() }
  if (isThere) throw new ModelNotFoundError(nameOrFolder, 'is a file, and neither a folder nor a GGUF file')
  return { path: null, hub, unfinished: null }
}

/** The same for those who cannot go on without it. */
export async function findModel(nameOrFolder: string, root = storeRoot()): Promise<string> {
  const located = await locateModel(nameOrFolder, root)
  if (located.path !== null) return located.path
  throw notFound(nameOrFolder, located)
}

export function notFound(name: string, { hub, unfinished }: Located & { readonly path: null }): ModelNotFoundError {
  const pull = hub === null ? null : `'moeflux pull ${hub.id}'`
  if (unfinished !== null) {
    return new ModelNotFoundError(name, `its download is not finished: ${pull ?? "'moeflux pull'"} resumes it`)
  }
  const next = pull === null ? "'moeflux list' shows them" : `${pull} downloads it, 'moeflux list' shows those you have`
  return new ModelNotFoundError(name, `no such folder or file, and the store has no model of this name (${next})`)
}

/** All that the local store holds. */
export async function listModels(root = storeRoot()): Promise<StoredModel[]> {
  return await modelsIn(root)
}

/** Removes a model from the store, with what was downloaded for it. Folders outside the store are never touched. */
export async function removeModel(nameOrId: string, root = storeRoot()): Promise<StoredModel> {
  const models = meantModels(nameOrId, await modelsIn(root), folderNameFor)
  if (models.length > 1) throw ambiguous(nameOrId, models)
  const [model] = models
  if (model === undefined) {
    throw new ModelNotFoundError(nameOrId, "the store has no such model ('moeflux list' shows them)")
  }
  if (model.shelf === 'models') await removeDownloads(root, model.id)
  if (!(await isFolder(model.folder))) return model
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

/** Not while they grow. What a pull that was killed left behind goes with its lock. */
async function removeDownloads(root: string, id: string): Promise<void> {
  const folders = (await listDownloads(root)).get(id) ?? []
  if (folders.length === 0) return
  const path = downloadLock(root, id)
  const lock = await lockFolder(path, { wait: false })
  try {
    for (const folder of folders) if (folder !== path) await rm(folder, { recursive: true, force: true })
  } finally {
    await lock.release()
  }
}

/** Who pulls the model of this id holds it. */
export function downloadLock(root: string, id: string): string {
  return join(root, 'downloads', `${id}.lock`)
}

function ambiguous(name: string, models: readonly StoredModel[]): ModelNotFoundError {
  return new ModelNotFoundError(name, `several models have this name; say which: ${models.map(m => m.id).join(', ')}`)
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

/** The built-in model: a small story teller that the build packs beside the compiled code. */
export function demoModelPath(): string {
  return fileURLToPath(new URL('../../demo-model', import.meta.url))
}
