// What became of the types of a GGUF file that a command was given.
import type { RelayCost } from '../gguf/relayCosts.js'
import { isGgufFile } from '../storage/openSource.js'

/** Undefined for other models. */
export async function costsOf(path: string): Promise<RelayCost[] | undefined> {
  if (!(await isGgufFile(path))) return undefined
  const { relayCosts } = await import('../gguf/relayCosts.js')
  const { openFileSource } = await import('../storage/fileSource.js')
  return await relayCosts(path, openFileSource)
}
