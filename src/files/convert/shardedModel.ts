// The safetensors files of a source model (one file, or shards listed by an index) as one table of tensors. Shards stay
// open until close(). Knows nothing of what tensors mean.
import { FormatError, ModelNotFoundError, ReadError } from '../../base/errors.js'
import type { ByteSource, Folder } from '../source.js'
import { asObject, asString, parseStrictJson } from '../strictJson.js'
import { readSafetensorsHeader, type SafetensorsTensor } from './safetensors.js'

export const INDEX_NAME = 'model.safetensors.index.json'
export const SINGLE_NAME = 'model.safetensors'
/** What metadata puts before the name of a matrix in blocks. */
export const BLOCK_KEY = 'blocks of '

export interface SourceTensor extends SafetensorsTensor {
  readonly source: ByteSource
}

export interface ShardedModel {
  readonly folder: Folder
  readonly tensors: ReadonlyMap<string, SourceTensor>
  readonly shards: ReadonlyMap<string, ByteSource> // by name, in the order of names
  /** 'mlx', 'pt', …: what the first shard's metadata says, if anything. */
  readonly format: string | undefined
  /** Formats of matrices in blocks by their names, where metadata says so: 'q4_k 256'. */
  readonly blocks: ReadonlyMap<string, string>
  close(): Promise<void>
}

export async function openShardedModel(folder: Folder): Promise<ShardedModel> {
  const index = await readIndex(folder)
  const names = index === null ? [SINGLE_NAME] : [...new Set(index.values())].sort()
  const shards = new Map<string, ByteSource>()
  const tensors = new Map<string, SourceTensor>()
  const shardOf = new Map<string, string>()
  let format: string | undefined
  const blocks = new Map<string, string>()
  const close = async () => {
    await Promise.all([...shards.values()].map(shard => shard.close()))
  }
  try {
    for (const name of names) {
      const source = await openShard(folder, name, index !== null)
      shards.set(name, source)
      const header = await readSafetensorsHeader(source)
      format ??= header.metadata.get('format')
      for (const [key, value] of header.metadata) {
        if (key.startsWith(BLOCK_KEY)) blocks.set(key.slice(BLOCK_KEY.length), value)
      }
      for (const tensor of header.tensors.values()) {
        const other = shardOf.get(tensor.name)
        if (other !== undefined) {
          throw new FormatError('TENSOR_TWICE', source.name, `tensor ${tensor.name} is also in ${other}`)
        }
        shardOf.set(tensor.name, name)
        tensors.set(tensor.name, { ...tensor, source })
      }
    }
    for (const [tensor, shard] of index ?? []) {
      if (shardOf.get(tensor) !== shard) {
        const detail = `the index says that tensor ${tensor} is in ${shard}, but it is not`
        throw new FormatError('TENSOR_NOT_IN_SHARD', `${folder.location}/${INDEX_NAME}`, detail)
      }
    }
  } catch (error) {
    await close()
    throw error
  }
  return { folder, tensors, shards, format, blocks, close }
}

/** Tensor name to shard name, or null where the model is one file. */
async function readIndex(folder: Folder): Promise<Map<string, string> | null> {
  const text = await folder.readText(INDEX_NAME)
  if (text === null) return null
  const file = `${folder.location}/${INDEX_NAME}`
  const root = asObject(parseStrictJson(text, file), file, 'the index')
  const weightMap = asObject(root.get('weight_map'), file, 'weight_map')
  if (weightMap.size === 0) throw new FormatError('EMPTY_INDEX', file, 'weight_map lists no tensor')
  return new Map([...weightMap].map(([tensor, shard]) => [tensor, asString(shard, file, `weight_map of ${tensor}`)]))
}

async function openShard(folder: Folder, name: string, listed: boolean): Promise<ByteSource> {
  try {
    return await folder.open(name)
  } catch (cause) {
    const isMissing = cause instanceof ModelNotFoundError || (cause instanceof ReadError && cause.wanted === 0)
    if (!isMissing) throw cause
    if (!listed)
      throw new ModelNotFoundError(folder.location, `holds neither ${INDEX_NAME} nor a readable ${SINGLE_NAME}`)
    const detail = cause instanceof ReadError ? cause.detail : cause.message
    throw new FormatError('MISSING_SHARD', `${folder.location}/${INDEX_NAME}`, `shard ${name}: ${detail}`, { cause })
  }
}
