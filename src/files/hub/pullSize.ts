// What becomes of a pull: the shapes of the model, its size when it is packed, and the disk that it needs on the way. GGUF
// files stay on the disk until all is packed; of safetensors, the tensors that are not experts, and two shards at a time
// (hubFolder.ts).
import { DiskFullError } from '../../base/errors.js'
import { parseConfig } from '../../model/config.js'
import { bytesIn, type ModelBytes } from '../../model/estimate.js'
import type { QuantFormat } from '../../model/quantizationConfig.js'
import { allExpertsBytes, FOUR_BIT, TWO_BIT } from '../../model/sizes.js'
import { type PackedSize, packedSize } from '../convert/packedSize.js'
import type { PackingOptions } from '../convert/packingPlan.js'
import { freeSpace } from '../diskFull.js'
import { openGgufFolder } from '../gguf/ggufFolder.js'
import { parseObject } from '../packed/openPacked.js'
import { CONFIG_NAME } from '../packed/packedNames.js'
import { type PullPlan, shardsOf } from './pullPlan.js'

export interface PullSize extends PackedSize {
  readonly downloadBytes: number
  /** Of the download, what stays on the disk until all is packed. */
  readonly keptBytes: number
  /** Of the rest, what is there at one time. */
  readonly passingBytes: number
}

const MAX_CONFIG_BYTES = 2 ** 24
const SHARDS_AT_ONCE = 2 // a layer may be in both

/** Refuses what cannot run. */
export async function sizePull(plan: PullPlan, options: PackingOptions = {}, signal?: AbortSignal): Promise<PullSize> {
  const { gguf, downloadBytes } = plan
  if (gguf !== null) {
    const size = await packedSize(await openGgufFolder(gguf.parts[0].path, plan.openStart), options)
    return { ...size, downloadBytes, keptBytes: downloadBytes, passingBytes: 0 }
  }
  const json = await fetchConfig(plan, signal)
  const config = parseConfig(json)
  const isQuantized = 'quantization' in json || 'quantization_config' in json
  const bytes = bytesIn(config, isQuantized ? (config.quantization ?? FOUR_BIT) : formatOf(options))
  // What is quantized already is packed as it is.
  const main = isQuantized ? downloadBytes : bytes.allExperts + bytes.resident
  const packedBytes = main + (options.experts2bit ? allExpertsBytes(config, TWO_BIT) : 0)
  return { config, bytes, packedBytes, downloadBytes, ...onTheWay(plan, bytes) }
}

/** A single file is given up at the end, as a whole. */
function onTheWay({ files, downloadBytes }: PullPlan, { allExperts, resident }: ModelBytes) {
  const sizes = shardsOf(files).map(({ size }) => size)
  if (sizes.length < 2) return { keptBytes: downloadBytes, passingBytes: 0 }
  const keptBytes = Math.ceil(downloadBytes * (resident / (resident + allExperts)))
  return { keptBytes, passingBytes: Math.min(SHARDS_AT_ONCE * Math.max(...sizes), downloadBytes - keptBytes) }
}

function formatOf({ bits = 4, groupSize = 64 }: PackingOptions): QuantFormat | null {
  return bits === 16 ? null : { bits, group: groupSize }
}

async function fetchConfig({ client, commit, files }: PullPlan, signal?: AbortSignal) {
  const size = files.get(CONFIG_NAME)?.size ?? 0
  if (size > MAX_CONFIG_BYTES) throw client.error(`${CONFIG_NAME}: ${size} bytes, want at most ${MAX_CONFIG_BYTES}`)
  const bytes = await client.fetchStart(client.fileUrl(commit, CONFIG_NAME), size, size, signal)
  return parseObject(new TextDecoder().decode(bytes), `${client.id}/${CONFIG_NAME}`)
}

/** Disk that must be free, with `there` bytes of an earlier pull on it: packed ones, kept ones, and parts of shards. */
export function missingBytes({ packedBytes, downloadBytes, keptBytes, passingBytes }: PullSize, there = 0): number {
  const stays = packedBytes + keptBytes
  const left = Math.max(0, 1 - there / Math.max(1, stays))
  return Math.max(0, stays - there) + Math.min(passingBytes, Math.ceil(left * downloadBytes))
}

/** Before anything is downloaded: hours later it would be as full. */
export async function checkRoom(root: string, size: PullSize, there: number): Promise<void> {
  const [needed, free] = [missingBytes(size, there), await freeSpace(root)]
  if (free !== null && free < needed) throw new DiskFullError(root, needed, free)
}
