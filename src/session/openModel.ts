// The public `openModel`: the engine's model together with the text side of its folder.
import { EngineModel } from '../engine/model.js'
import { type OpenModelOptions, openModelParts } from '../engine/openModel.js'
import type { Folder } from '../storage/byteSource.js'

export class Model extends EngineModel {}

/** Opens a packed, MLX or HF folder; the last two are packed once into the cache. */
export async function openModel(folder: string | Folder, options: OpenModelOptions = {}): Promise<Model> {
  return new Model(await openModelParts(folder, options))
}
