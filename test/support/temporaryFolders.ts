// Folders that go when the test file that made them ends, whenever they were made: hooks that register hooks are not heard.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folders: string[] = []

export function folderOfThisFile(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `moeflux-${name}-`))
  folders.push(folder)
  return folder
}

export function removeFolders(): void {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true })
}
