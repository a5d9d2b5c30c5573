// Whatever model a user names, a packed folder comes back: packed folders as they are, MLX and HF folders and GGUF files
// packed once into the cache, found there again by what they hold. Small files that changed since are copied into the
// same pack.
import { createHash } from 'node:crypto'
import { stat } from 'node:fs/promises'
import { ModelNotFoundError } from '../../base/errors.js'
import { findModel, packedCacheFolder, storeRoot } from '../models/modelStore.js'
import { openNodeFolder } from '../nodeFolder.js'
import { isGgufFile, openSource } from '../openSource.js'
import { readMetadata, refuseUnfinished } from '../packed/openPacked.js'
import { CONFIG_NAME, MANIFEST_NAME } from '../packed/packedNames.js'
import { CONVERTER_VERSION, modelNameOf } from './convert.js'
import { changedTexts } from './copiedTexts.js'
import { packInto } from './packFolder.js'
import { INDEX_NAME, openShardedModel, SINGLE_NAME } from './shardedModel.js'
import { sourceIdentity } from './sourceIdentity.js'

export interface PreparePackedOptions {
  readonly root?: string // of the store
  readonly onNotice?: (line: string) => void
  readonly onProgress?: (progress: { phase: string; loaded: number; total: number }) => void
  readonly signal?: AbortSignal
}

/** The path of a packed folder with the model that is meant: a folder, a GGUF file, or the name of a stored model. */
export async function preparePacked(pathOrName: string, options: PreparePackedOptions = {}): Promise<string> {
  const isThere = (await stat(pathOrName).catch(() => null)) !== null
  const path = isThere || pathOrName === '' ? pathOrName : await findModel(pathOrName, options.root)
  const source = await openSource(path)
  if (!(await isGgufFile(path))) {
    const packed = await openNodeFolder(path, { links: 'any' })
    await refuseUnfinished(packed)
    if ((await packed.readText(MANIFEST_NAME)) !== null) return packed.location
  }
  if ((await source.readText(CONFIG_NAME)) === null) {
    throw new ModelNotFoundError(source.location, `holds no ${CONFIG_NAME}: it is not a model`)
  }
  const sharded = await openShardedModel(source).catch(error => {
    if (!(error instanceof ModelNotFoundError)) throw error
    const detail = `holds no ${MANIFEST_NAME}, no ${INDEX_NAME} and no ${SINGLE_NAME}: it is not a model`
    throw new ModelNotFoundError(source.location, detail)
  })
  const identity = await sourceIdentity(sharded).finally(() => sharded.close())
  const key = createHash('sha256').update(`${CONVERTER_VERSION} ${identity}`).digest('hex').slice(0, 12)
  const name = modelNameOf(source.location)
  const target = packedCacheFolder(options.root ?? storeRoot(), name, key)

  const there = await openNodeFolder(target, { links: 'any' }).catch(() => null)
  const metadata = there && (await readMetadata(there))
  if (there && metadata && (await changedTexts(source, there, metadata)).size === 0) return target
  if (metadata === null) options.onNotice?.(`${source.location} is packed once, into ${target}`)
  await packInto(source, target, {
    name,
    onNotice: options.onNotice,
    onProgress: options.onProgress,
    signal: options.signal,
  })
  return target
}
