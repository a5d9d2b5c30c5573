// Tiny models that chat: weights of other families, with a tokenizer and a chat template of their own. What they say is
// noise, but each says its own.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { demoFiles } from '../textTools.js'
import { TEMPLATES } from './dialectModels.js'
import { type FamilyName, keptWeights, writeFamily } from './families.js'

const WORDS = 500 // of the demo's vocabulary; the models have 512

interface TokenizerJson {
  model: { vocab: Record<string, number>; merges: [string, string][] }
  added_tokens: { id: number; content: string }[]
}

/** Packs a tiny model of the family at `folder`. */
export async function packTinyChat(name: FamilyName, dialect: keyof typeof TEMPLATES, folder: string): Promise<string> {
  const source = `${folder}.source`
  writeFamily(name, source)
  const json = JSON.parse((await demoFiles()).get('tokenizer.json') as string) as TokenizerJson
  json.model.vocab = Object.fromEntries(Object.entries(json.model.vocab).filter(([, id]) => id < WORDS))
  json.model.merges = json.model.merges.filter(([a, b]) => `${a}${b}` in json.model.vocab)
  json.added_tokens = json.added_tokens.map((token, i) => ({ ...token, id: WORDS + i }))
  writeFileSync(join(source, 'tokenizer.json'), JSON.stringify(json))
  writeFileSync(join(source, 'tokenizer_config.json'), '{}')
  writeFileSync(join(source, 'chat_template.jinja'), TEMPLATES[dialect])
  mkdirSync(folder, { recursive: true })
  await packFolder(source, folder, keptWeights(name))
  return folder
}
