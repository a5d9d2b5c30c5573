// What a name of a model can mean: a place on a hub, said as its id, as an address that was copied from a browser, or by a
// short name; and which of some stored models. Pure: whether anything is there, others look.
import { findWellKnown } from '../../model/wellKnownModels.js'

/** A model on a hub. */
export interface HubReference {
  readonly id: string // 'owner/name', or 'owner/name:Q4_K_M'
  readonly revision: string | null
}

const ID = /^[\w.-]+\/[\w.-]+(:[\w./-]+)?$/
const ADDRESS = /^(?:hf:\/\/|(?:https?:\/\/)?(?:www\.)?(?:huggingface\.co|hf\.co)\/)(.+)$/i

/** Null: it names nothing on a hub. */
export function hubReference(text: string): HubReference | null {
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
  return { id, revision: revision === undefined || revision === 'main' ? null : decodeURIComponent(revision) }
}

/** The stored models that a name means: all of them, so that who asks can say that it is not clear. */
export function meantModels<Model extends { readonly id: string; readonly name: string }>(
  text: string,
  models: readonly Model[],
  folderNameFor: (name: string) => string,
): Model[] {
  const reference = hubReference(text)
  const wellKnown = findWellKnown(text)
  const folder = folderNameFor(reference?.id ?? text)
  const wanted = text.toLowerCase()
  const ways: ((model: Model) => boolean)[] = [
    ({ id }) => id === text,
    ({ name }) => name === text,
    ({ id, name }) => reference !== null && (id === folder || name === reference.id),
    ({ name }) => lastPart(name) === wanted,
    // One that somebody else packed is as good, where it is the only one.
    ({ name }) => wellKnown !== null && lastPart(name).startsWith(wellKnown.title.toLowerCase()),
  ]
  for (const way of ways) {
    const meant = models.filter(way)
    if (meant.length > 0) return meant
  }
  return []
}

function lastPart(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1).toLowerCase()
}
