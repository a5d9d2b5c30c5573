// The list of models that a web page can run in its own tab: `models/index.json` of a static site, and what the server
// answers in its place. Pure; who reads and writes files is elsewhere.
import type { Metadata } from './manifest.js'

export interface ModelEntry {
  readonly name: string
  /** The model's folder, relative to the list; ends with a slash. */
  readonly path: string
  readonly residentBytes: number // needed before the first token
  readonly expertBytes: number // fetched as tokens are routed to them
}

export interface SiteIndex {
  readonly models: readonly ModelEntry[]
}

/** A model's name as one part of an address. */
export function siteName(name: string): string {
  return name.replace(/[^\w.-]+/g, '-').replace(/^\.+/, '') || 'model'
}

export function modelEntry(name: string, metadata: Metadata): ModelEntry {
  let residentBytes = 0
  let expertBytes = 0
  for (const [file, { size }] of metadata.files) {
    if (file.startsWith('packed_experts_2bit')) continue
    if (file.startsWith('packed_experts/')) expertBytes += size
    else residentBytes += size
  }
  return { name, path: `${siteName(name)}/`, residentBytes, expertBytes }
}

/** No name and no folder twice: later ones get a number. Disks that fold case take `A` and `a` for one folder. */
export function distinctEntries(entries: readonly ModelEntry[]): ModelEntry[] {
  const names = new Set<string>()
  const folders = new Set<string>()
  return entries.map(entry => {
    const name = unused(entry.name, names)
    const folder = unused(siteName(name), folders)
    return { ...entry, name, path: `${folder}/` }
  })
}

function unused(name: string, taken: Set<string>): string {
  let free = name
  for (let number = 2; taken.has(free.toLowerCase()); number++) free = `${name}-${number}`
  taken.add(free.toLowerCase())
  return free
}
