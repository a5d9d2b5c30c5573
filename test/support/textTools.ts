// What the text tests share: the demo model's tokenizer and template, read straight from the repository.
import { readFile } from 'node:fs/promises'
import type { Folder } from '#moeflux/files/source.js'
import { loadTokenizer, type Tokenizer } from '#moeflux/text/tokenizer/tokenizer.js'

export function textFolder(files: ReadonlyMap<string, string>): Folder {
  return {
    location: 'memory',
    readText: async name => files.get(name) ?? null,
    open: async name => {
      throw new Error(`no bytes in ${name}`)
    },
  }
}

const read = (path: string) => readFile(new URL(`../../${path}`, import.meta.url), 'utf8')

export async function demoFiles(): Promise<Map<string, string>> {
  const names = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja']
  return new Map(await Promise.all(names.map(async name => [name, await read(`demo-model/${name}`)] as const)))
}

export async function demoTokenizer(): Promise<Tokenizer> {
  return (await loadTokenizer(textFolder(await demoFiles())))!
}

export interface GoldenPrompt {
  readonly text: string
  readonly input_ids: number[]
  readonly greedy_ids: number[]
  readonly greedy_text: string
}

export async function goldenPrompts(): Promise<GoldenPrompt[]> {
  return JSON.parse(await read('test/data/goldens/goldens.json')).demo.prompts
}

export async function goldenTexts(): Promise<string[]> {
  return JSON.parse(await read('test/data/goldens/goldens.json')).demo.nll.text
}
