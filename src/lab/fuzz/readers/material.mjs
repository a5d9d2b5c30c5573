// The valid files that broken ones are made of.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const repository = fileURLToPath(new URL('../../../..', import.meta.url))
export const tinySource = join(repository, 'test/data/tiny-bf16')
export const demoSource = join(repository, 'demo-model')
export const demoModel = join(repository, 'dist/demo-model')

/** The value of a JSON file's bytes. */
export function parsed(bytes) {
  return JSON.parse(new TextDecoder().decode(bytes))
}
