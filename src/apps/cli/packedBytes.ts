// The shapes of a packed model and the sizes of its parts, from its own tables; no weights are read.
import type { ModelConfig } from '../../index.js'
import {
  isGgufFile,
  type ModelBytes,
  openFileSource,
  openNodeFolder,
  openPacked,
  type RelayCost,
  relayCosts,
  storedBytes,
} from '../../internal.js'

export interface PackedBytes {
  readonly name: string
  readonly location: string
  readonly config: ModelConfig
  readonly bytes: ModelBytes
  readonly expertFiles: readonly string[]
}

export async function readPackedBytes(folder: string): Promise<PackedBytes> {
  const packed = await openPacked(await openNodeFolder(folder, { links: 'any' }))
  try {
    const { config, tensors, weights, experts } = packed
    return {
      name: packed.name,
      location: packed.folder.location,
      config,
      bytes: {
        expert: experts.layout.expertSize,
        allExperts: experts.files.reduce((sum, file) => sum + file.size, 0),
        resident: weights.size,
        // A tied embedding is the head as well, and a token computes with all of it.
        embedding: config.tieWordEmbeddings ? 0 : storedBytes(tensors.embed),
      },
      expertFiles: experts.files.map(file => file.name),
    }
  } finally {
    await packed.close()
  }
}

// What became of the types of a GGUF file that a command was given.

/** Undefined for other models. */
export async function costsOf(path: string): Promise<RelayCost[] | undefined> {
  return (await isGgufFile(path)) ? await relayCosts(path, openFileSource) : undefined
}
