// The models that tests open: the demo model as the build packed it, and the tiny one packed on the spot.
import { join } from 'node:path'
import { packFolder } from '#moeflux/files/convert/packFolder.js'
import { folderOfThisFile } from '../temporaryFolders.js'
import { repository, tinyFusedSource, tinySource } from './packedFiles.js'

export const demoModel = join(repository, 'dist/demo-model')

/** Packs the tiny model as it is (BF16) into a folder that goes when the test file ends. */
export async function packTiny(layout: 'separate' | 'fused' = 'separate'): Promise<string> {
  const folder = folderOfThisFile('tiny')
  await packFolder(layout === 'fused' ? tinyFusedSource : tinySource, folder, { bits: 16 })
  return folder
}
