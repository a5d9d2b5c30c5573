// A GGUF file as the folder that the converter reads: its metadata as config.json, tokenizer.json and the like, its tensors as
// one safetensors file in which everything has its own order and layout again.
import { ModelNotFoundError } from '../../base/errors.js'
import { type ModelConfig, parseConfig, withDraftHead } from '../../model/config.js'
import { SINGLE_NAME } from '../convert/shardedModel.js'
import { CONFIG_NAME, GENERATION_CONFIG_NAME } from '../packed/packedNames.js'
import type { ByteSource, Folder } from '../source.js'
import { configOf, generationConfigOf } from './ggufConfig.js'
import { GgufFields } from './ggufFields.js'
import { type GgufFile, openGgufFile } from './ggufFile.js'
import { hasGgufHead, nameTensors } from './ggufTensors.js'
import { tokenizerOf } from './ggufTokenizer.js'
import { relaidSource } from './repackedSource.js'

export type OpenFile = (path: string) => Promise<ByteSource>

export function isGgufName(name: string): boolean {
  return name.toLowerCase().endsWith('.gguf')
}

/** `open` is given the path, and those of the other parts of a split file. */
export async function openGgufFolder(path: string, open: OpenFile): Promise<Folder> {
  const file = await openGgufFile(path, open)
  try {
    const texts = textsOf(file)
    return {
      location: file.name,
      async readText(name) {
        return texts.get(name) ?? null
      },
      async open(name) {
        if (name !== SINGLE_NAME) throw new ModelNotFoundError(`${file.name}/${name}`, 'no such file')
        return await openTensors(path, open)
      },
    }
  } finally {
    await file.close()
  }
}

async function openTensors(path: string, open: OpenFile): Promise<ByteSource> {
  const file = await openGgufFile(path, open)
  try {
    return relaidSource(file.name, nameTensors(file, modelConfigOf(file)), () => file.close())
  } catch (error) {
    await file.close()
    throw error
  }
}

export function modelConfigOf(file: GgufFile): ModelConfig {
  const fields = new GgufFields(file.metadata, file.name)
  const config = parseConfig(configFields(file, fields), generationConfigOf(fields))
  return hasGgufHead(file, config) ? withDraftHead(config) : config
}

function configFields(file: GgufFile, fields: GgufFields) {
  const vocabSize = file.tensors.get('token_embd.weight')?.shape[0] ?? 0
  return configOf(fields, { vocabSize, has: name => file.tensors.has(name) })
}

function textsOf(file: GgufFile): Map<string, string> {
  const fields = new GgufFields(file.metadata, file.name)
  const texts = new Map([
    [CONFIG_NAME, `${JSON.stringify(configFields(file, fields), null, 2)}\n`],
    [GENERATION_CONFIG_NAME, `${JSON.stringify(generationConfigOf(fields), null, 2)}\n`],
  ])
  const tokenizer = tokenizerOf(fields)
  if (tokenizer === null) return texts
  texts.set('tokenizer.json', tokenizer.tokenizer)
  texts.set('tokenizer_config.json', tokenizer.config)
  if (tokenizer.template !== null) texts.set('chat_template.jinja', tokenizer.template)
  return texts
}
