// What a pull would bring: which commit and files of a model on a hub, how large, and what the model is. Asks the hub, and
// downloads no weights.
import { HubError } from '../../base/errors.js'
import { type ModelConfig, parseConfig } from '../../model/config.js'
import { checkArchitecture } from '../gguf/ggufConfig.js'
import { GgufFields } from '../gguf/ggufFields.js'
import { readGgufHeader } from '../gguf/ggufFile.js'
import { type HubReference, hubReference, nearModels } from '../models/modelName.js'
import { didYouMean } from '../models/nearNames.js'
import { parseObject } from '../packed/openPacked.js'
import { CONFIG_NAME } from '../packed/packedNames.js'
import { chooseGguf, type GgufChoice, splitModelId } from './ggufChoice.js'
import { HubClient, type HubFile, type HubOptions } from './hubClient.js'

export interface PullPlan {
  readonly client: HubClient
  readonly commit: string
  readonly files: ReadonlyMap<string, HubFile>
  readonly gguf: GgufChoice | null
  /** The model's name in the store: 'owner/name', or 'owner/name:Q4_K_M'. */
  readonly name: string
  readonly downloadBytes: number // of weights
}

/** `model`: 'owner/name' and of GGUF files which, as 'owner/name:Q4_K_M'; an address of the hub; or a short name. */
export async function planPull(
  model: string | HubReference,
  options: HubOptions & { readonly revision?: string; readonly signal?: AbortSignal } = {},
): Promise<PullPlan> {
  const reference = typeof model === 'string' ? referenceOf(model) : model
  const { id, precision } = splitModelId(reference.id)
  const client = new HubClient(id, options)
  const commit = await client.commit(options.revision ?? reference.revision ?? 'main', options.signal).catch(error => {
    throw error instanceof HubError && ABSENT.has(error.status) ? withNear(error) : error
  })
  const files = await client.files(commit, options.signal)
  const gguf = chooseGguf(id, precision, files)
  if (gguf !== null) await checkGguf(client, commit, gguf, options.signal)
  else if (!files.has(CONFIG_NAME)) throw new HubError(id, `has no ${CONFIG_NAME}: not a model that can be packed`)
  const name = gguf === null ? id : `${id}:${gguf.name}`
  return { client, commit, files, gguf, name, downloadBytes: weightBytes(files, gguf) }
}

function referenceOf(text: string): HubReference {
  const reference = hubReference(text)
  if (reference !== null) return reference
  throw new HubError(text, `is not a hub id, want 'owner/name' or a short name${didYouMean(nearModels(text))}`)
}

/** What a hub answers of a model that it does not have; without a token also 401. */
const ABSENT: ReadonlySet<number | null> = new Set([401, 404])

function withNear(error: HubError): HubError {
  const { id, message, status } = error
  const detail = `${message.slice(id.length + 2)}${didYouMean(nearModels(id))}`
  return new HubError(id, detail, { status: status ?? undefined, cause: error })
}

/** The shapes of the model and how its weights are stored, where its folder says so; refuses what will never run. */
export async function planConfig(
  { client, commit, files, gguf }: PullPlan,
  signal?: AbortSignal,
): Promise<{ readonly config: ModelConfig; readonly isQuantized: boolean } | null> {
  const file = files.get(CONFIG_NAME)
  if (gguf !== null || file === undefined) return null
  const url = client.fileUrl(commit, CONFIG_NAME)
  const text = new TextDecoder().decode(await client.fetchStart(url, file.size, file.size, signal))
  const json = parseObject(text, `${client.id}/${CONFIG_NAME}`)
  return { config: parseConfig(json), isQuantized: 'quantization' in json || 'quantization_config' in json }
}

/** What will never run is not downloaded: the start of the first part says what it is. */
async function checkGguf(
  client: HubClient,
  commit: string,
  { parts }: GgufChoice,
  signal?: AbortSignal,
): Promise<void> {
  const [{ path, size }] = parts
  const url = client.fileUrl(commit, path)
  const { metadata } = await readGgufHeader({
    name: `${client.id}/${path}`,
    size,
    async read(_, target) {
      target.set(await client.fetchStart(url, target.length, size, signal))
    },
    async close() {},
  })
  checkArchitecture(new GgufFields(metadata, `${client.id}/${path}`))
}

function weightBytes(files: ReadonlyMap<string, HubFile>, gguf: GgufChoice | null): number {
  if (gguf !== null) return gguf.parts.reduce((sum, { size }) => sum + size, 0)
  let total = 0
  // Folders hold the same weights in other forms, which nobody downloads.
  for (const { path, size } of files.values()) if (/^[^/]+\.safetensors$/.test(path)) total += size
  return total
}
