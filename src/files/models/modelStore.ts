// The local store of packed models: says what a name means, the same way for all commands and the server, and removes
// models. What lies where is told by storedModels.ts; downloads and converts nothing.
import { readdir, rename, rm, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Environment } from '../../base/environment.js'
import { ModelNotFoundError } from '../../base/errors.js'
import { refuseBundle } from '../../base/nodeInstalled.js'
import { findWellKnown, type WellKnownModel } from '../../model/wellKnownModels.js'
import { lockFolder } from '../folderLock.js'
import { refuseEmptyName } from '../nodeFolder.js'
import { isGgufFile } from '../openSource.js'
import { CONFIG_NAME, JOURNAL_NAME, LOCK_NAME, MANIFEST_NAME, METADATA_NAME } from '../packed/packedNames.js'
import { folderNameFor, type HubReference, hubReference, meantModels, nearModels, nearStored } from './modelName.js'
import { didYouMean } from './nearNames.js'
import { listDownloads, modelsIn, type StoredModel } from './storedModels.js'

export const DEMO_NAME = 'demo'

const REMOVING = '.removing-'

/** `MOEFLUX_HOME`, or `~/.cache/moeflux`. */
export function storeRoot(environment: Environment = process.env): string {
  return resolve(environment.MOEFLUX_HOME || join(homedir(), '.cache', 'moeflux'))
}

/** Where a model of this name lives in the store. */
export function storedModelFolder(root: string, name: string): string {
  return join(root, 'models', folderNameFor(name))
}

/** Where a raw folder's packed form is kept, by what it holds. */
export function packedCacheFolder(root: string, name: string, key: string): string {
  return join(root, 'packed', `${folderNameFor(name)}-${key}`)
}

/** What a name means: a model that is here, or what is known of one that is not. */
export type Located = StoredPlace | AbsentModel

export interface StoredPlace {
  readonly path: string // of a folder or GGUF file
  readonly stored: StoredModel | null // null: outside the store, or the built-in demo
}

export interface AbsentModel {
  readonly path: null
  readonly hub: HubReference | null
  readonly known: WellKnownModel | null
  readonly unfinished: StoredModel | null
  readonly near: readonly string[] // names that are similar to the one that was given
}

/**
 * A folder or GGUF file that is there, or what `locateNamed` finds. A folder that holds no model hides no name: it is the
 * answer only where nothing else has that name.
 */
export async function locateModel(nameOrPath: string, root = storeRoot()): Promise<Located> {
  refuseEmptyName(nameOrPath)
  const path = resolve(nameOrPath)
  const info = await stat(path).catch(() => null)
  const place: StoredPlace = { path, stored: null }
  if (info?.isDirectory() ? await holdsModel(path) : info !== null && (await isGgufFile(path))) return place
  const named = await locateNamed(nameOrPath, root)
  if (info === null || named.path !== null || named.hub !== null) return named
  if (info.isDirectory()) return place
  throw new ModelNotFoundError(nameOrPath, 'is a file, and neither a folder nor a GGUF file')
}

/** A stored model by its name or a part of it, the built-in demo, or one of the hub. Looks into no folder outside the store. */
export async function locateNamed(text: string, root = storeRoot()): Promise<Located> {
  const name = text.trim()
  refuseEmptyName(name)
  const models = await modelsIn(root)
  const whole = meantModels(name, models.filter(isWhole))
  const meant = whole.length > 0 ? whole : meantModels(name, models)
  if (meant.length > 1) throw ambiguous(name, meant)
  const [model] = meant
  if (model !== undefined && isWhole(model)) return { path: model.folder, stored: model }
  if (model === undefined && name === DEMO_NAME) return { path: demoModelPath(), stored: null }
  const hub = model === undefined ? hubReference(name) : hubOf(model, hubReference(name))
  const near = hub === null ? nearModels(name, [DEMO_NAME, ...models.map(each => each.name)]) : []
  return { path: null, hub, known: findWellKnown(name), unfinished: model ?? null, near }
}

/** What a pull of this model goes on with. Folders have no ':', so that one of both names may lack it. */
function hubOf(model: StoredModel, asked: HubReference | null): HubReference | null {
  const isOwn = asked !== null && folderNameFor(asked.id) === model.id
  const names = [...(isOwn ? [asked] : []), hubReference(model.name)]
  return names.find(reference => reference?.id.includes(':')) ?? names[0]
}

/** Not a pull on its way. */
function isWhole({ state, shelf }: StoredModel): boolean {
  return state !== 'unfinished' || shelf !== 'models'
}

/** For callers that cannot do without the model. */
export async function findModel(nameOrPath: string, root = storeRoot()): Promise<string> {
  const located = await locateModel(nameOrPath, root)
  if (located.path !== null) return located.path
  throw notFound(nameOrPath, located)
}

/** `also`: another way to download it, such as a flag. */
export function notFound(name: string, { hub, unfinished, near }: AbsentModel, also?: string): ModelNotFoundError {
  const pull = [...(hub === null ? [] : [`'moeflux pull ${hub.id}'`]), ...(also === undefined ? [] : [also])].join(
    ' or ',
  )
  if (unfinished !== null) {
    return new ModelNotFoundError(name, `its download is not finished: ${pull || "'moeflux pull'"} resumes it`)
  }
  const list = "'moeflux list' shows those you have"
  const next =
    hub !== null
      ? ` (${pull} downloads it, ${list})`
      : near.length > 0
        ? didYouMean(near)
        : ` (${list}, 'moeflux search' finds others)`
  return new ModelNotFoundError(name, `no such folder or file, and the store has no model of this name${next}`)
}

/** All that the local store holds. */
export async function listModels(root = storeRoot()): Promise<StoredModel[]> {
  return await modelsIn(root)
}

/** Removes a model from the store, with what was downloaded for it. Folders outside the store are never touched. */
export async function removeModel(nameOrId: string, root = storeRoot()): Promise<StoredModel> {
  const model = await storedModelNamed(nameOrId, root)
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

/** The one of the store that is meant, whatever folders of this name are elsewhere. */
export async function storedModelNamed(nameOrId: string, root = storeRoot()): Promise<StoredModel> {
  const models = await modelsIn(root)
  const name = nameOrId.trim()
  // A name that would open another model than this one is refused.
  const opened = meantModels(name, models.filter(isWhole))
  const meant = [...new Set([...meantModels(name, models), ...opened])]
  if (meant.length > 1) throw ambiguous(nameOrId, meant)
  const [model] = meant
  if (model !== undefined) return model
  const near = nearStored(
    nameOrId,
    models.map(each => each.name),
  )
  const next = didYouMean(near) || " ('moeflux list' shows them)"
  throw new ModelNotFoundError(nameOrId, `the store has no such model${next}`)
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

async function holdsModel(folder: string): Promise<boolean> {
  const names = await readdir(folder).catch(() => [] as string[])
  return [CONFIG_NAME, MANIFEST_NAME, METADATA_NAME, JOURNAL_NAME].some(name => names.includes(name))
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() ?? false
}

/** The built-in model: a small story teller that the build packs beside the compiled code. */
export function demoModelPath(): string {
  refuseBundle()
  return fileURLToPath(new URL('../../demo-model', import.meta.url))
}
