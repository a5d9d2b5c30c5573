// All readers of files. Each has a valid input, a way to make one that is nearly valid, and a way to read it that succeeds or
// throws an error of moeflux that names what is broken; what it finds wrong beyond that it throws as `Wrong`.
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { workFolder } from '../caseFolder.mjs'
import { ggufReaders } from './gguf.mjs'
import { tinySource } from './material.mjs'
import { modelReaders } from './model.mjs'
import { savedReaders } from './saved.mjs'
import { stateReaders } from './state.mjs'
import { textReaders } from './text.mjs'

export async function prepareReaders() {
  const packed = workFolder('packed')
  await packFolder(tinySource, packed)
  const models = { ...modelReaders(packed), ...(await ggufReaders()) }
  return { ...models, ...textReaders(), ...(await stateReaders(packed)), ...(await savedReaders()) }
}
