// The models that tests open: the demo model as the build packed it, and the tiny one packed on the spot.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'
import { packFolder } from '#moeflux/storage/packFolder.js'
import { repository, tinyFusedSource, tinySource } from './packedFiles.js'

export const demoModel = join(repository, 'dist/demo-model')

const folders: string[] = []
// Here, while the test file is read: a hook within a hook would never run.
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

/** Packs the tiny model as it is (BF16) into a folder that goes when the test file ends. */
export async function packTiny(layout: 'separate' | 'fused' = 'separate'): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'moeflux-tiny-'))
  folders.push(folder)
  await packFolder(layout === 'fused' ? tinyFusedSource : tinySource, folder, { bits: 16 })
  return folder
}
