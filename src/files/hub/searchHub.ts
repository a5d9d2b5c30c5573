// Looks for models on a hub by words, and says of each whether it runs here, as far as the hub tells: by the `model_type`
// and the quantization of its config.json, or by the architecture of its GGUF files.
import { families, familyOfArchitecture } from '../../model/families/families.js'
import { parseQuantization } from '../../model/quantizationConfig.js'
import { Hub, type HubOptions, isHubId, parseJson } from './hubClient.js'

export interface SearchOptions extends HubOptions {
  readonly limit?: number // default 20
  /** Tags of the hub that all must have, such as 'gguf' or 'mlx'. */
  readonly filter?: readonly string[]
  readonly signal?: AbortSignal
}

export interface FoundModel {
  readonly id: string
  readonly downloads: number | null // of the last month
  readonly isGguf: boolean
  readonly family: string | null // its model_type or architecture
  readonly runs: boolean | null // null: the hub does not tell
  readonly reason: string | null // why it does not run
  readonly needsToken: boolean
}

const DEFAULT_FOUND = 20
const FIELDS = ['downloads', 'tags', 'config', 'gguf', 'gated', 'private']
const MAX_ID = 200

type Fields = Readonly<Record<string, unknown>>

/** Those that are downloaded most come first. */
export async function searchHub(words: string, options: SearchOptions = {}): Promise<FoundModel[]> {
  const { limit = DEFAULT_FOUND, filter = [], signal } = options
  const hub = new Hub('search', options)
  const query = new URLSearchParams({ search: words.trim(), sort: 'downloads', direction: '-1', limit: String(limit) })
  for (const tag of filter) query.append('filter', tag)
  for (const field of FIELDS) query.append('expand[]', field)
  const url = `${hub.endpoint}/api/models?${query}`
  const found = parseJson((await hub.fetchAnswer(url, signal)).bytes)
  if (!Array.isArray(found)) throw hub.error(`${hub.endpoint}/api/models: did not answer with a list of models`)
  return found.slice(0, limit).flatMap(entry => readModel(fieldsOf(entry)))
}

/** None for an entry without an id that could be pulled: such text is not shown. */
function readModel(entry: Fields): FoundModel[] {
  const { id, modelId, downloads, gated } = entry
  const name = typeof id === 'string' ? id : modelId
  if (typeof name !== 'string' || name.length > MAX_ID || !isHubId(name)) return []
  const tags = Array.isArray(entry.tags) ? entry.tags.filter(tag => typeof tag === 'string') : []
  return [
    {
      id: name,
      downloads: Number.isSafeInteger(downloads) ? (downloads as number) : null,
      ...verdictOf(entry, tags),
      needsToken: entry.private === true || (gated !== undefined && gated !== false),
    },
  ]
}

type Verdict = Pick<FoundModel, 'isGguf' | 'family' | 'runs' | 'reason'>

function verdictOf(entry: Fields, tags: readonly string[]): Verdict {
  const config = fieldsOf(entry.config)
  const architecture = wordOf(fieldsOf(entry.gguf).architecture)
  const hasSafetensors = tags.includes('safetensors') || tags.includes('mlx')
  // As `pull` does: without a precision a repository of both is read as safetensors.
  const isGguf = !hasSafetensors && (architecture !== null || tags.includes('gguf'))
  const modelTypes = families.flatMap(family => family.modelTypes)
  const family = isGguf
    ? architecture
    : (wordOf(config.model_type) ?? modelTypes.find(type => tags.includes(type)) ?? null)
  const verdict = (runs: boolean | null, reason: string | null = null) => ({ isGguf, family, runs, reason })
  if (!isGguf && !hasSafetensors && tags.length > 0) return verdict(false, 'neither safetensors nor GGUF')
  if (family === null) return verdict(null)
  const isKnown = isGguf ? familyOfArchitecture(family) !== undefined : modelTypes.includes(family)
  if (!isKnown) return verdict(false, family)
  const quantization = isGguf ? null : quantizationProblem(config.quantization_config)
  return quantization === null ? verdict(true) : verdict(false, quantization)
}

/** A few words on a quantization that is not computed here; null: it is. */
function quantizationProblem(json: unknown): string | null {
  try {
    parseQuantization(json)
    return null
  } catch {
    const { quant_method: method, bits } = fieldsOf(json)
    return wordOf(method) ?? (Number.isSafeInteger(bits) ? `${bits} bits` : 'its quantization')
  }
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {}
}

/** A name as config.json has them. Anything else of a hub's answer is not shown: a terminal might obey it. */
function wordOf(value: unknown): string | null {
  return typeof value === 'string' && /^[\w.-]{1,60}$/.test(value) ? value : null
}
