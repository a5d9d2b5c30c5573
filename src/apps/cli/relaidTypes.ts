// What became of the types of a GGUF file that a command was given.
import { isGgufFile, openFileSource, type RelayCost, relayCosts } from '../../internal.js'

/** Undefined for other models. */
export async function costsOf(path: string): Promise<RelayCost[] | undefined> {
  return (await isGgufFile(path)) ? await relayCosts(path, openFileSource) : undefined
}
