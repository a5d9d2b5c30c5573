// A folder for one case: the files of a valid one, linked, with some of them exchanged for broken ones.
import { linkSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'

const root = mkdtempSync(join(tmpdir(), 'moeflux-fuzz-'))
let cases = 0
process.on('exit', () => rmSync(root, { recursive: true, force: true }))

/** A folder that goes when the process ends. */
export function workFolder(name) {
  return join(root, name)
}

/** Name to bytes of every file below a folder; names with `/`. */
export function filesOf(folder) {
  const files = new Map()
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const path = join(entry.parentPath, entry.name)
    files.set(relative(folder, path).replaceAll('\\', '/'), new Uint8Array(readFileSync(path)))
  }
  return files
}

/** Runs `use` on a copy of `folder` in which `changed` (name to bytes, text, or null for none) stands instead. */
export async function withCaseFolder(folder, changed, use) {
  const path = join(root, `case-${++cases}`)
  try {
    mkdirSync(path)
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
      const from = join(entry.parentPath, entry.name)
      const name = relative(folder, from).replaceAll('\\', '/')
      if (entry.isDirectory()) mkdirSync(join(path, name), { recursive: true })
      else if (!changed.has(name)) {
        mkdirSync(dirname(join(path, name)), { recursive: true })
        linkSync(from, join(path, name))
      }
    }
    for (const [name, content] of changed) {
      mkdirSync(dirname(join(path, name)), { recursive: true })
      if (content !== null) writeFileSync(join(path, name), content)
    }
    return await use(path)
  } finally {
    rmSync(path, { recursive: true, force: true })
  }
}
