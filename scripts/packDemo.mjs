// Packs demo-model/ into dist/demo-model with the converter that was just built. Skipped when nothing it depends on is
// newer than the packed model.
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const source = join(root, 'demo-model')
const target = join(root, 'dist/demo-model')
const finished = join(target, 'moeflux.json') // written last

function newest(folder) {
  const times = readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter(entry => entry.isFile())
    .map(entry => statSync(join(entry.parentPath, entry.name)).mtimeMs)
  return Math.max(...times)
}

const folders = [source, join(root, 'dist/files'), join(root, 'dist/model')]
const changed = Math.max(statSync(fileURLToPath(import.meta.url)).mtimeMs, ...folders.map(newest))
if (!existsSync(finished) || changed > statSync(finished).mtimeMs) {
  const { packFolder } = await import('../dist/files/convert/packFolder.js')
  rmSync(target, { recursive: true, force: true })
  await packFolder(source, target, { name: 'demo' })
}
