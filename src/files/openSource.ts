// What a user names as a model to be packed, as a folder: a directory with safetensors, or a GGUF file.
import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { openFileSource } from './fileSource.js'
import { isGgufName, openGgufFolder } from './gguf/ggufFolder.js'
import { openNodeFolder } from './nodeFolder.js'
import type { Folder } from './source.js'

export async function isGgufFile(path: string): Promise<boolean> {
  return isGgufName(path) && !((await stat(path).catch(() => null))?.isDirectory() ?? false)
}

export async function openSource(path: string): Promise<Folder> {
  if (await isGgufFile(path)) return openGgufFolder(resolve(path), openFileSource)
  return openNodeFolder(path, { links: 'inside' })
}
