// Where SwiftShader is, for processes that a test starts. Importing this changes nothing in this process (swiftShader.ts does).
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import { repository } from '../models/packedFiles.js'

/** The environment in which Dawn finds SwiftShader. */
export function swiftShaderEnvironment(): Record<string, string> {
  if (process.platform !== 'linux' || process.arch !== 'x64') return {}
  const folder = unpack()
  return { VK_ICD_FILENAMES: join(folder, 'vk_swiftshader_icd.json'), LD_LIBRARY_PATH: folder }
}

/** An option of Node, for those of them in which Dawn is to wait as it does here. */
export const WAIT_GENTLY = `--import ${new URL('../waitGently.mjs', import.meta.url).href}`

function unpack(): string {
  const chromium = join(repository, 'node_modules/@sparticuz/chromium')
  const { version } = JSON.parse(readFileSync(join(chromium, 'package.json'), 'utf8')) as { version: string }
  const cache = join(repository, 'node_modules/.cache')
  const folder = join(cache, `swiftshader-${version}`)
  if (existsSync(folder)) return folder
  mkdirSync(cache, { recursive: true })
  const fresh = mkdtempSync(join(cache, 'swiftshader-'))
  const tar = brotliDecompressSync(readFileSync(join(chromium, 'bin/swiftshader.tar.br')))
  for (let at = 0; at + 512 <= tar.length; ) {
    const name = tar.toString('latin1', at, at + 100).replace(/\0.*$/s, '')
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 136), 8) || 0
    if (name !== '') writeFileSync(join(fresh, name), tar.subarray(at + 512, at + 512 + size), { mode: 0o755 })
    at += 512 + Math.ceil(size / 512) * 512
  }
  try {
    renameSync(fresh, folder) // whoever comes first; files never look half-made
  } catch {
    rmSync(fresh, { recursive: true, force: true })
  }
  return folder
}
