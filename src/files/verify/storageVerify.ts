// Reads a whole model folder and says what is wrong with it, and of every file of the model what it was compared with. A
// file that nothing says anything about is named as such: its sizes, shapes and floats are looked at, which finds a
// poisoned scale and no more.
import { JOURNAL_NAME, MANIFEST_NAME, METADATA_NAME } from '../packed/packedNames.js'
import type { ListedFolder, VerifyOptions, VerifyReport } from '../verifyReport.js'
import { verifyPacked } from './verify.js'
import { verifySource } from './verifySource.js'

/** Packed by us or by others, or as it was downloaded. */
export async function verifyModel(folder: ListedFolder, options: VerifyOptions = {}): Promise<VerifyReport> {
  const names = await folder.list()
  const isPacked = [METADATA_NAME, JOURNAL_NAME, MANIFEST_NAME].some(name => names.includes(name))
  return isPacked ? verifyPacked(folder, names, options) : verifySource(folder, names, options)
}
