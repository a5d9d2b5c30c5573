// What a pull would download: which commit and files of a model on a hub, and how large. Asks the hub, and downloads no
// weights. What becomes of them is told by pullSize.ts.
import { HubError } from '../../base/errors.js'
import { checkArchitecture } from '../gguf/ggufConfig.js'
import { GgufFields } from '../gguf/ggufFields.js'
import { readGgufHeader } from '../gguf/ggufFile.js'
import type { OpenFile } from '../gguf/ggufFolder.js'
import { type HubReference, hubReference, nearModels } from '../models/modelName.js'
import { didYouMean } from '../models/nearNames.js'
import { CONFIG_NAME } from '../packed/packedNames.js'
import type { ByteSource } from '../source.js'
import { chooseGguf, type GgufChoice, splitModelId } from './ggufChoice.js'
import { HubClient, type HubFile, type HubOptions } from './hubClient.js'

export interface PullPlan {
  readonly client: HubClient
  readonly commit: string
  readonly files: ReadonlyMap<string, HubFile>
  readonly gguf: GgufChoice | null
  /** Opens GGUF files on the hub, of which only the headers are read. */
  readonly openStart: OpenFile
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
  const openStart = startsOnHub(client, commit, files, options.signal)
  if (gguf !== null) await checkGguf(gguf, openStart)
  else if (!files.has(CONFIG_NAME)) throw new HubError(id, `has no ${CONFIG_NAME}: not a model that can be packed`)
  const name = gguf === null ? id : `${id}:${gguf.name}`
  return { client, commit, files, gguf, openStart, name, downloadBytes: weightBytes(files, gguf) }
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

/** What will never run is not downloaded: the start of the first part says what it is. */
async function checkGguf({ parts: [first] }: GgufChoice, open: OpenFile): Promise<void> {
  const source = await open(first.path)
  const { metadata } = await readGgufHeader(source)
  checkArchitecture(new GgufFields(metadata, source.name))
}

/** Opens files of which the start alone can be read, which has their headers; it is fetched once. */
function startsOnHub(
  client: HubClient,
  commit: string,
  files: ReadonlyMap<string, HubFile>,
  signal?: AbortSignal,
): OpenFile {
  const sources = new Map<string, ByteSource>()
  return async path => {
    const file = files.get(path)
    if (file === undefined) throw client.error(`has no ${path}`)
    const source = sources.get(path) ?? startOf(client, commit, file, signal)
    sources.set(path, source)
    return source
  }
}

function startOf(client: HubClient, commit: string, { path, size }: HubFile, signal?: AbortSignal): ByteSource {
  let start = new Uint8Array(0)
  return {
    name: `${client.id}/${path}`,
    size,
    async read(offset, target) {
      const end = offset + target.length
      if (start.length < end) {
        start = new Uint8Array(await client.fetchStart(client.fileUrl(commit, path), end, size, signal))
      }
      target.set(start.subarray(offset, end))
    },
    async close() {},
  }
}

function weightBytes(files: ReadonlyMap<string, HubFile>, gguf: GgufChoice | null): number {
  return (gguf?.parts ?? shardsOf(files)).reduce((sum, { size }) => sum + size, 0)
}

/** Folders hold the same weights in other forms, which nobody downloads. */
export function shardsOf(files: ReadonlyMap<string, HubFile>): HubFile[] {
  return [...files.values()].filter(({ path }) => /^[^/]+\.safetensors$/.test(path))
}
