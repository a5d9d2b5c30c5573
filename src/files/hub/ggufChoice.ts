// Which GGUF model of a hub's repository is meant: repositories hold one in several precisions, each a file or several parts.
// Pure.
import { HubError } from '../../base/errors.js'
import { isGgufName } from '../gguf/ggufFolder.js'
import type { HubFile } from './hubClient.js'

/** A model in one precision. */
export interface GgufChoice {
  readonly name: string // as it is asked for: 'Q4_K_M', or the file's name where that tells none
  readonly parts: readonly HubFile[] // in their order
}

/** 'owner/name:Q4_K_M' in two. */
export function splitModelId(text: string): { readonly id: string; readonly precision: string | null } {
  const at = text.indexOf(':')
  return at < 0 ? { id: text, precision: null } : { id: text.slice(0, at), precision: text.slice(at + 1) }
}

/** Null: the repository is to be read as a folder of safetensors. */
export function chooseGguf(
  id: string,
  precision: string | null,
  files: ReadonlyMap<string, HubFile>,
): GgufChoice | null {
  const hasSafetensors = [...files.keys()].some(path => path.endsWith('.safetensors'))
  const choices = listChoices(files)
  if (precision === null) {
    if (hasSafetensors || choices.length === 0) return null
    throw new HubError(id, `has GGUF files; say which: ${shownChoices(id, choices)}`)
  }
  if (choices.length === 0) throw new HubError(id, `has no GGUF files, so ':${precision}' names nothing`)
  const wanted = precision.toLowerCase()
  const found = choices.filter(({ name, parts }) => isMeant(wanted, name, parts[0].path))
  const exact = found.filter(({ name }) => name.toLowerCase() === wanted)
  const [choice, ...others] = exact.length > 0 ? exact : found
  if (choice === undefined) throw new HubError(id, `has no '${precision}'; there are: ${shownChoices(id, choices)}`)
  if (others.length > 0) throw new HubError(id, `several are '${precision}'; say which: ${shownChoices(id, found)}`)
  return choice
}

function isMeant(wanted: string, name: string, path: string): boolean {
  const file = path.toLowerCase()
  return name.toLowerCase() === wanted || file === wanted || name.toLowerCase().endsWith(`-${wanted}`)
}

function shownChoices(id: string, choices: readonly GgufChoice[]): string {
  return choices.map(({ name }) => `${id}:${name}`).join(', ')
}

function listChoices(files: ReadonlyMap<string, HubFile>): GgufChoice[] {
  const models = new Map<string, HubFile[]>()
  for (const file of files.values()) {
    // Projectors of images and matrices of importance are no language models.
    if (!isGgufName(file.path) || /mmproj|imatrix/i.test(file.path)) continue
    const stem = file.path.replace(/(-\d{5}-of-\d{5})?\.gguf$/i, '')
    models.set(stem, [...(models.get(stem) ?? []), file])
  }
  const names = new Map([...models.keys()].map(stem => [stem, precisionOf(stem)]))
  const isOnly = (name: string) => [...names.values()].filter(other => other === name).length === 1
  return [...models].map(([stem, parts]) => {
    const precision = names.get(stem) ?? ''
    const name = precision !== '' && isOnly(precision) ? precision : stem
    return { name, parts: parts.sort((a, b) => (a.path < b.path ? -1 : 1)) }
  })
}

/** The last part of a name that tells bits: 'Q4_K_M', 'UD-Q4_K_XL', 'MXFP4_MOE', 'BF16'. */
function precisionOf(stem: string): string {
  const match = /[-.]((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32))$/i.exec(stem)
  return match === null ? '' : match[1]
}
