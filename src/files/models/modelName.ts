// What a name of a model can mean: a place on a hub, said as its id, as an address that was copied from a browser, or by a
// short name; and which of some stored models. Pure: whether anything is there, others look.
import { findWellKnown, WELL_KNOWN_MODELS } from '../../model/wellKnownModels.js'
import { type NameGroup, nearNames } from './nearNames.js'

/** A model on a hub. */
export interface HubReference {
  readonly id: string // 'owner/name', or 'owner/name:Q4_K_M'
  readonly revision: string | null
}

const ID = /^[\w.-]+\/[\w.-]+(:[\w./-]+)?$/
const PATH = /^[.~/\\]|^[a-z]+:\/\/|\.gguf$/i
const ADDRESS = /^(?:hf:\/\/|(?:https?:\/\/)?(?:www\.)?(?:huggingface\.co|hf\.co)\/)(.+)$/i

/** Null: it names nothing on a hub. */
export function hubReference(name: string): HubReference | null {
  const text = name.trim()
  const wellKnown = findWellKnown(text)
  if (wellKnown !== null) return { id: wellKnown.hub, revision: null }
  const address = ADDRESS.exec(text)
  if (address !== null) return parseAddress(address[1])
  // What begins with a dot or ends with a file's ending is a path that is not there.
  if (!ID.test(text) || text.startsWith('.') || text.includes('..') || /\.gguf$/i.test(text)) return null
  return { id: text, revision: null }
}

/** 'owner/name', 'owner/name/tree/v2', 'owner/name/blob/main/x-Q4_K_M.gguf'. */
function parseAddress(path: string): HubReference | null {
  const [owner, name, kind, revision, ...file] = path
    .replace(/[?#].*$/, '')
    .replace(/\/+$/, '')
    .split('/')
  const inside = file.join('/')
  const isFile = (kind === 'blob' || kind === 'resolve') && /\.gguf$/i.test(inside)
  const id = `${owner}/${name}${isFile ? `:${inside}` : ''}`
  if (!ID.test(id) || id.includes('..')) return null
  if (revision === undefined || revision === 'main') return { id, revision: null }
  try {
    return { id, revision: decodeURIComponent(revision) }
  } catch {
    return null // a stray '%'
  }
}

/** The folder of a model in the store, which is its id there: 'org/name' is one folder, 'org--name'. */
export function folderNameFor(name: string): string {
  return name
    .replaceAll('/', '--')
    .replace(/[^a-zA-Z0-9._-]/g, '_')
    .replace(/^\.+/, '_')
}

/** The stored models that a name means: all of them, so that the caller can refuse a name of several. */
export function meantModels<Model extends { readonly id: string; readonly name: string }>(
  text: string,
  models: readonly Model[],
): Model[] {
  const reference = hubReference(text)
  const wellKnown = findWellKnown(text)
  const folder = folderNameFor(reference?.id ?? text)
  const wanted = text.toLowerCase()
  const ways: ((model: Model) => boolean)[] = [
    ({ id }) => id === text,
    ({ name }) => name === text,
    ({ id, name }) => reference !== null && (id === folder || name === reference.id),
    ({ name }) => name.toLowerCase() === wanted || lastPart(name) === wanted,
    // One that somebody else packed is as good, where it is the only one.
    ({ name }) => wellKnown !== null && lastPart(name).startsWith(wellKnown.title.toLowerCase()),
  ]
  for (const way of ways) {
    const meant = models.filter(way)
    if (meant.length > 0) return meant
  }
  return []
}

/** Names of well-known models, and of `stored` ones, that are similar to a name that means none of them. */
export function nearModels(text: string, stored: readonly string[] = []): string[] {
  if (PATH.test(text)) return []
  const hasOwner = text.includes('/')
  const known = WELL_KNOWN_MODELS.map(({ names, hub }): NameGroup => (hasOwner ? [hub] : names))
  const others = stored.filter(name => hasOwner || !WELL_KNOWN_MODELS.some(({ hub }) => hub === name))
  return nearNames(text, [...storedNames(text, others), ...known])
}

/** Of `stored` ones alone. */
export function nearStored(text: string, stored: readonly string[]): string[] {
  return nearNames(text, storedNames(text, stored))
}

function storedNames(text: string, stored: readonly string[]): NameGroup[] {
  return stored.map(name => (text.includes('/') ? [name] : [lastPartOf(name), name]))
}

function lastPart(name: string): string {
  return lastPartOf(name).toLowerCase()
}

function lastPartOf(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1)
}
